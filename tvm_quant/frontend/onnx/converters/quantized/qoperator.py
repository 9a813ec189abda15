"""ONNX Runtime's operators on codes: QLinearConv, QGemm, QLinearAdd and the like.

Each is the float operator between the real numbers of its operands and a quantizer, with the
arithmetic of ONNX Runtime's kernels for x86 (`Convention.ONNXRUNTIME`). Its kernels for Arm give
other codes where QLinearAdd meets a tie.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from tvm import relax

from tvm_quant.frontend.onnx.converters import conv, pool
from tvm_quant.frontend.onnx.converters.node import Converter, Node
from tvm_quant.frontend.onnx.converters.pad import auto_pads
from tvm_quant.frontend.onnx.converters.quantized.codes import (
    as_codes,
    from_codes,
    grid_of,
    integer_spec,
    real_of,
)
from tvm_quant.frontend.onnx.converters.quantized.place import Grid, place
from tvm_quant.ir import constant, tensor_shape
from tvm_quant.op import Convention, Formula

R = relax.op


def qlinear_conv(node: Node) -> relax.Expr:
    """Inputs: x, w and y, each with scale and zero point (y without codes), and an int32 bias."""
    data, weight = real_of(node, 0, 1, 2), real_of(node, 3, 4, 5, axis=0)
    bias = None if node.input(8) is None else _bias(node, 8, 1, 4)
    result = conv.conv(replace(node, inputs=[data, weight, bias]))
    return _result(node, result, 6, 7)


def qlinear_matmul(node: Node) -> relax.Expr:
    """Inputs: a and b, each with scale and zero point; scale and zero point of y."""
    left, right = real_of(node, 0, 1, 2, axis=-2), real_of(node, 3, 4, 5, axis=-1)
    return _result(node, R.matmul(left, right), 6, 7)


def qgemm(node: Node) -> relax.Expr:
    """Inputs: a and b, each with scale and zero point; an int32 c; scale and zero point of y.

    A factor `alpha` is part of the scale of a, which is where ONNX Runtime rounds it to float32.
    """
    alpha = np.float32(node.attributes.get("alpha", 1.0))
    if alpha > 0:
        scale = constant(alpha * node.known(1, "scale"))
        node = replace(node, inputs=[node.inputs[0], scale, *node.inputs[2:]])
    turned = bool(node.attributes.get("transB", 0))
    left, right = real_of(node, 0, 1, 2), real_of(node, 3, 4, 5, axis=0 if turned else 1)
    if node.attributes.get("transA", 0):
        left = node.emit(R.permute_dims(left))
    if turned:
        right = node.emit(R.permute_dims(right))
    result = node.emit(R.matmul(left, right))
    if node.input(6) is not None:
        result = node.emit(R.add(result, _bias(node, 6, 1, 4)))
    if alpha <= 0:
        result = node.emit(R.multiply(result, constant(alpha)))
    return result if node.input(7) is None else _result(node, result, 7, 8)


def two_operands(function: Callable[[relax.Expr, relax.Expr], relax.Expr]) -> Converter:
    """QLinearAdd, QLinearMul: a and b, then y, each with scale and zero point (y without codes)."""

    def convert(node: Node) -> relax.Expr:
        operands = real_of(node, 0, 1, 2), real_of(node, 3, 4, 5)
        return _result(node, function(*operands), 6, 7)

    return convert


def one_operand(function: Callable[[Node, relax.Expr], relax.Expr]) -> Converter:
    """QLinearSigmoid and other functions: x, scale, zero point; scale and zero point of y."""

    def convert(node: Node) -> relax.Expr:
        return _result(node, function(node, real_of(node, 0, 1, 2)), 3, 4)

    return convert


def leaky_relu(node: Node, data: relax.Expr) -> relax.Expr:
    """With the slope of the node."""
    return R.nn.leakyrelu(data, float(node.attributes.get("alpha", 0.01)))


def softmax(node: Node, data: relax.Expr) -> relax.Expr:
    """Along one axis; before version 13 of the operator along all behind it."""
    axis = int(node.attributes.get("axis", -1))
    rank = len(tensor_shape(data) or ())
    if int(node.attributes.get("opset", 13)) < 13 and axis % rank != rank - 1:
        raise ValueError("it normalizes along several axes; export with opset 13 or later")
    return R.nn.softmax(data, axis)


def qlinear_average_pool(node: Node) -> relax.Expr:
    """Inputs: x and y, each with scale and zero point (y without codes).

    ONNX Runtime averages float32 numbers, and adds the zero point before it rounds. Windows as
    large as the data it takes for a global pool.
    """
    data = real_of(node, 0, 1, 2)
    windows = replace(node, inputs=[_channels_second(node, data)])
    kernel = tuple(int(size) for size in node.attributes["kernel_shape"])
    if windows.shape()[2:] == kernel and not any(auto_pads(windows, kernel)):
        return _result(node, global_average_pool(node, data), 3, 4)
    real = node.emit(_channels_as_before(node, pool.average_pool(windows)))
    grid = grid_of(node, real, 3, 4)
    shifted = replace(grid, spec=replace(grid.spec, formula=Formula.SHIFT))
    return as_codes(node, place(node, real, shifted, Convention.NEAREST), grid)


def global_average_pool(node: Node, data: relax.Expr) -> relax.Expr:
    """All of each channel."""
    rank = len(tensor_shape(data) or ())
    last = bool(node.attributes.get("channels_last", 0))
    axes = list(range(1, rank - 1) if last else range(2, rank))
    return R.mean(data, axes, keepdims=True)


def qlinear_concat(node: Node) -> relax.Expr:
    """Inputs: scale and zero point of y; then each tensor with scale and zero point."""
    parts = []
    for index in range(2, len(node.inputs), 3):
        real = real_of(node, index, index + 1, index + 2)
        parts.append(place(node, real, grid_of(node, real, 0, 1), Convention.ONNXRUNTIME))
    return _result(node, R.concat(parts, int(node.attributes.get("axis", 1))), 0, 1)


def _channels_second(node: Node, data: relax.Expr) -> relax.Expr:
    """Data of a node whose channels may stand last."""
    if not node.attributes.get("channels_last", 0):
        return data
    rank = len(tensor_shape(data) or ())
    return node.emit(R.permute_dims(data, [0, rank - 1, *range(1, rank - 1)]))


def _channels_as_before(node: Node, result: relax.Expr) -> relax.Expr:
    if not node.attributes.get("channels_last", 0):
        return result
    result = node.emit(result)
    return R.permute_dims(result, [0, *range(2, len(tensor_shape(result) or ())), 1])


def _result(node: Node, real: relax.Expr, scale: int, zero_point: int) -> relax.Expr:
    """The codes of a result, by the arithmetic of ONNX Runtime."""
    real = node.emit(real)
    grid = grid_of(node, real, scale, zero_point)
    return as_codes(node, place(node, real, grid, Convention.ONNXRUNTIME), grid)


def _bias(node: Node, index: int, data_scale: int, weight_scale: int) -> relax.Expr:
    """An int32 bias in steps of both scales."""
    bias = node.required(index)
    scale = node.known(data_scale, "scale") * node.known(weight_scale, "scale of the weights")
    size = 1 if scale.size == 1 else scale.size
    if size not in (1, (tensor_shape(bias) or (None,))[-1]):
        raise ValueError(f"its bias of shape {tensor_shape(bias)} does not fit {size} scales")
    rank = len(tensor_shape(bias) or ())
    shape = () if size == 1 else (1,) * (rank - 1) + (-1,)
    grid = Grid(
        scale=np.asarray(scale, "float32").reshape(shape),
        zero_point=np.zeros((1,) * rank if size > 1 else (), "int64"),
        spec=integer_spec("int32"),
    )
    if grid.scale.size > 1:
        grid = replace(grid, zero_point=np.zeros(grid.scale.shape, "int64"))
    return from_codes(node, bias, grid)
