"""MatMulInteger, ConvInteger and DynamicQuantizeLinear.

Codes less their zero points are integers: a quantizer of scale 1 holds them, whether the zero point
is known or computed at run time, and `Realize` sums their products in 32 bits.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from onnx import TensorProto
from tvm import relax

from tvm_quant.frontend.onnx.converters import conv
from tvm_quant.frontend.onnx.converters.node import Node
from tvm_quant.frontend.onnx.converters.quantized.codes import (
    from_codes,
    grid_of,
    integer_spec,
    quantized_constant,
)
from tvm_quant.frontend.onnx.converters.quantized.place import Grid, place
from tvm_quant.ir import constant, constant_value
from tvm_quant.op import QuantSpec

R = relax.op

_UNIT = {"scale": np.ones((), "float32"), "zero_point": np.zeros((), "int64")}


def matmul_integer(node: Node) -> relax.Expr:
    """Inputs: a, b, zero point of a, zero point of b."""
    left, right = _integers(node, 0, 2, axis=-2), _integers(node, 1, 3, axis=-1)
    return _sums(node, R.matmul(left, right))


def conv_integer(node: Node) -> relax.Expr:
    """Inputs: x, w, zero point of x, zero point of w."""
    data, weight = _integers(node, 0, 2, axis=1), _integers(node, 1, 3, axis=0)
    result = conv.conv(replace(node, inputs=[data, weight]))
    return _sums(node, result)


def cast(node: Node) -> relax.Expr | None:
    """Sums of integers to float are what they were made of; other casts are TVM's."""
    if int(node.attributes.get("to", 0)) != TensorProto.FLOAT:
        return None
    return node.sums.get(node.data)


def dynamic_quantize_linear(node: Node) -> relax.Expr:
    """Codes, scale and zero point of data whose range is found at run time.

    Source: ONNX operator DynamicQuantizeLinear.
    """
    data, zero = node.data, constant(np.float32(0))
    high = node.emit(R.maximum(R.max(data), zero))
    low = node.emit(R.minimum(R.min(data), zero))
    # `Prepare` makes a product of a division by a constant, which in 64 bits rounds as this does.
    extent = R.astype(R.subtract(high, low), "float64")
    scale = node.emit(R.astype(R.divide(extent, constant(np.float64(255))), "float32"))
    flat = R.equal(scale, zero)
    scale = node.emit(R.where(flat, constant(np.float32(1)), scale))
    start = R.clip(R.round(R.divide(R.negative(low), scale)), 0.0, 255.0)
    start = node.emit(start)
    codes = R.clip(R.add(R.round(R.divide(data, scale)), start), 0.0, 255.0)
    return relax.Tuple([R.astype(codes, "uint8"), scale, R.astype(start, "uint8")])


def _sums(node: Node, real: relax.Expr) -> relax.Var:
    """Whole numbers as integers of 32 bits."""
    real = node.emit(real)
    sums = node.emit(R.astype(real, "int32"))
    node.sums[sums] = real
    return sums


def _integers(node: Node, index: int, zero_point: int, *, axis: int) -> relax.Expr:
    """Codes less their zero point, in float."""
    codes = node.required(index)
    spec = integer_spec(str(codes.ty.dtype), node.width(index))
    if node.is_computed(zero_point):
        shift = R.astype(node.required(zero_point), "float32")
        steps = node.emit(R.subtract(R.astype(codes, "float32"), shift))
        return place(node, steps, Grid(**_UNIT, spec=_differences(spec)))
    grid = _unit_grid(node, codes, zero_point, axis, spec)
    known = constant_value(codes)
    if known is not None:
        return quantized_constant(node, known, grid)
    return from_codes(node, codes, grid)


def _unit_grid(node: Node, codes: relax.Expr, zero_point: int, axis: int, spec: QuantSpec) -> Grid:
    """Steps of 1 around the zero point of an operand."""
    known = node.constant(zero_point)
    zeros = np.zeros((), str(codes.ty.dtype)) if known is None else known
    steps = np.ones(zeros.shape, "float32")
    inputs = [codes, constant(steps), constant(zeros)]
    return grid_of(replace(node, inputs=inputs, bits=()), codes, 1, 2, axis=axis, spec=spec)


def _differences(spec: QuantSpec) -> QuantSpec:
    """All differences of two codes."""
    reach = spec.qmax - spec.qmin
    return QuantSpec(bits=spec.bits + 1, low=-reach, high=reach)
