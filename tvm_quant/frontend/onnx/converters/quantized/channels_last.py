"""QONNX's Conv, MaxPool and BatchNormalization of tensors whose channels stand last."""

from __future__ import annotations

from dataclasses import replace

from tvm import relax

from tvm_quant.frontend.onnx.converters.node import Node
from tvm_quant.frontend.onnx.converters.pad import auto_pads
from tvm_quant.ir import tensor_shape

R = relax.op
_CONV = {1: R.nn.conv1d, 2: R.nn.conv2d, 3: R.nn.conv3d}
_MAX_POOL = {1: R.nn.max_pool1d, 2: R.nn.max_pool2d, 3: R.nn.max_pool3d}
_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


def conv(node: Node) -> relax.Expr:
    """Weights have their input channels last as well, or second as in the standard."""
    rank = node.spatial_rank()
    shape = node.shape(1)
    kernel = [int(k) for k in node.attributes.get("kernel_shape") or shape[1:-1] if k]
    last = list(shape[1:-1]) == kernel
    spatial = _SPATIAL[rank]
    result = _CONV[rank](
        node.data,
        node.required(1),
        strides=_sizes(node, "strides"),
        padding=auto_pads(_channels_second(node), kernel),
        dilation=_sizes(node, "dilations"),
        groups=int(node.attributes.get("group", 1)),
        data_layout=f"N{spatial}C",
        kernel_layout=f"O{spatial}I" if last else f"OI{spatial}",
    )
    bias = node.input(2)
    return result if bias is None else R.add(node.emit(result), bias)


def max_pool(node: Node) -> relax.Expr:
    """Of windows."""
    rank = node.spatial_rank()
    kernel = [int(k) for k in node.attributes["kernel_shape"]]
    return _MAX_POOL[rank](
        node.data,
        kernel,
        strides=_sizes(node, "strides"),
        padding=auto_pads(_channels_second(node), kernel),
        dilation=_sizes(node, "dilations"),
        ceil_mode=bool(node.attributes.get("ceil_mode", 0)),
        layout=f"N{_SPATIAL[rank]}C",
    )


def batch_normalization(node: Node) -> relax.Expr:
    """Inputs: data, scale, bias, mean, variance."""
    axis = len(node.shape()) - 1
    epsilon = float(node.attributes.get("epsilon", 1e-5))
    operands = [node.required(index) for index in range(5)]
    return relax.TupleGetItem(
        node.emit(R.nn.batch_norm(*operands, axis=axis, epsilon=epsilon, training=False)), 0
    )


def _sizes(node: Node, name: str) -> list[int]:
    return [int(n) for n in node.attributes.get(name, [1] * node.spatial_rank())]


def _channels_second(node: Node) -> Node:
    """The node as padding is computed for it."""
    shape = tensor_shape(node.data) or ()
    if None in shape:
        return node
    standard = [shape[0], shape[-1], *shape[1:-1]]
    placeholder = relax.Var("data", relax.TensorType(standard, "float32"))
    return replace(node, inputs=[placeholder, *node.inputs[1:]])
