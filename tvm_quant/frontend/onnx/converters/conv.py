"""Conv and ConvTranspose with explicit padding."""

from __future__ import annotations

from tvm import relax

from tvm_quant.frontend.onnx.converters.float_sums import in_float_order
from tvm_quant.frontend.onnx.converters.node import Node
from tvm_quant.frontend.onnx.converters.pad import auto_pads
from tvm_quant.ir import constant_value

_CONV = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}
_CONV_TRANSPOSE = {
    1: relax.op.nn.conv1d_transpose,
    2: relax.op.nn.conv2d_transpose,
    3: relax.op.nn.conv3d_transpose,
}
_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


def conv(node: Node) -> relax.Expr:
    """1-d, 2-d and 3-d."""
    return _with_bias(node, _product(node))


def float_conv(node: Node) -> relax.Expr:
    """Conv of a model, whose sums of float32 may have to be those of another library."""
    product = node.builder.normalize(_product(node))
    return _with_bias(node, in_float_order(node, product) if node.float_sums else product)


def _product(node: Node) -> relax.Call:
    rank = node.spatial_rank()
    return _CONV[rank](
        node.data,
        node.inputs[1],
        strides=list(node.attributes.get("strides", [1] * rank)),
        padding=auto_pads(node, _kernel(node)),
        dilation=list(node.attributes.get("dilations", [1] * rank)),
        groups=node.attributes.get("group", 1),
        data_layout=f"NC{_SPATIAL[rank]}",
        kernel_layout=f"OI{_SPATIAL[rank]}",
    )


def conv_transpose(node: Node) -> relax.Expr:
    """Padding follows from `output_shape` or `auto_pad` where they are given."""
    rank = node.spatial_rank()
    output_padding = list(node.attributes.get("output_padding", [0] * rank))
    result = _CONV_TRANSPOSE[rank](
        node.data,
        node.inputs[1],
        strides=list(node.attributes.get("strides", [1] * rank)),
        padding=_transposed_pads(node, output_padding),
        output_padding=output_padding,
        dilation=list(node.attributes.get("dilations", [1] * rank)),
        groups=node.attributes.get("group", 1),
        data_layout=f"NC{_SPATIAL[rank]}",
        kernel_layout=f"IO{_SPATIAL[rank]}",
    )
    return _with_bias(node, result)


def _transposed_pads(node: Node, output_padding: list[int]) -> list[int]:
    """Pads (all begins, then all ends).

    Source: ONNX operator ConvTranspose: total = stride * (input - 1) + output_padding
    + (kernel - 1) * dilation + 1 - output_shape, where SAME_* means output = input * stride.
    """
    rank = node.spatial_rank()
    mode = node.attributes.get("auto_pad", "NOTSET")
    wanted = node.attributes.get("output_shape")
    if wanted is None and mode == "NOTSET":
        return list(node.attributes.get("pads", [0] * (2 * rank)))
    if wanted is None and mode == "VALID":
        return [0] * (2 * rank)
    strides = node.attributes.get("strides", [1] * rank)
    dilations = node.attributes.get("dilations", [1] * rank)
    begins, ends = [], []
    for i, (k, s, d) in enumerate(zip(_kernel(node), strides, dilations, strict=True)):
        surplus = _surplus(node.shape()[2 + i], s, None if wanted is None else wanted[-rank:][i])
        total = surplus + output_padding[i] + (k - 1) * d + 1
        if total < 0 and wanted is not None:
            raise ValueError(f"output_shape {wanted} is larger than the operator can produce")
        total = max(total, 0)
        small, large = total // 2, total - total // 2
        begins.append(small if mode == "SAME_UPPER" else large)
        ends.append(large if mode == "SAME_UPPER" else small)
    return begins + ends


def _surplus(size: int | None, stride: int, output: int | None) -> int:
    """What remains of stride * (input - 1) - output."""
    if output is None:
        return -stride
    if size is None:
        raise ValueError("output_shape needs a known input size; fix it with shapes={...}")
    return stride * (size - 1) - int(output)


def _kernel(node: Node) -> list[int]:
    kernel = [int(k) for k in node.attributes.get("kernel_shape") or node.shape(1)[2:] if k]
    if len(kernel) != node.spatial_rank():
        raise ValueError("the shape of the kernel is unknown or does not fit the data")
    return kernel


def _with_bias(node: Node, result: relax.Expr) -> relax.Expr:
    bias = node.input(2)
    if bias is None:
        return result
    shape = (1, -1, *[1] * node.spatial_rank())
    value = constant_value(bias)
    if value is not None:
        bias = relax.const(value.reshape(shape), str(value.dtype))
    else:
        bias = relax.op.reshape(bias, shape)
    return relax.op.add(node.builder.emit(result), bias)
