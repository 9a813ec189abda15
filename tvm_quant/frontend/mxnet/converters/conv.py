"""Convolution, Deconvolution and FullyConnected."""

from __future__ import annotations

from tvm import relax

from tvm_quant.frontend.mxnet.converters.node import Node

R = relax.op

_CONV = {1: R.nn.conv1d, 2: R.nn.conv2d, 3: R.nn.conv3d}
_TRANSPOSED = {1: R.nn.conv1d_transpose, 2: R.nn.conv2d_transpose, 3: R.nn.conv3d_transpose}
_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


def convolution(node: Node) -> relax.Expr:
    """1-d, 2-d and 3-d, channels second."""
    rank = spatial_rank(node)
    result = _CONV[rank](
        node.data,
        node.operand(1),
        strides=node.per_axis("stride", rank, 1),
        padding=node.per_axis("pad", rank, 0) * 2,
        dilation=node.per_axis("dilate", rank, 1),
        groups=node.attributes.integer("num_group", 1),
        data_layout=f"NC{_SPATIAL[rank]}",
        kernel_layout=f"OI{_SPATIAL[rank]}",
    )
    return _with_bias(node, result, bias=not node.attributes.flag("no_bias"))


def deconvolution(node: Node) -> relax.Expr:
    """The transposed convolution; without bias unless the node says otherwise."""
    rank = spatial_rank(node)
    strides = node.per_axis("stride", rank, 1)
    dilation = node.per_axis("dilate", rank, 1)
    padding, extra = _transposed_pads(node, rank, strides, dilation)
    result = _TRANSPOSED[rank](
        node.data,
        node.operand(1),
        strides=strides,
        padding=padding * 2,
        output_padding=extra,
        dilation=dilation,
        groups=node.attributes.integer("num_group", 1),
        data_layout=f"NC{_SPATIAL[rank]}",
        kernel_layout=f"IO{_SPATIAL[rank]}",
    )
    return _with_bias(node, result, bias=not node.attributes.flag("no_bias", default=True))


def fully_connected(node: Node) -> relax.Expr:
    """Data, flat but for axis 0 or as it is, times the transpose of weight (O, I)."""
    data = node.data
    if node.attributes.flag("flatten", default=True) and node.rank() != 2:
        data = node.emit(R.reshape(data, (node.shape()[0], -1)))
    result = R.matmul(data, node.emit(R.permute_dims(node.operand(1))))
    if node.attributes.flag("no_bias"):
        return result
    return R.add(node.emit(result), node.operand(2))


def spatial_rank(node: Node) -> int:
    """Number of axes behind batch and channel.

    Raises:
        ValueError: channels are not the second axis, or another rank than 1 to 3.
    """
    rank = node.rank() - 2
    if rank not in _SPATIAL:
        raise ValueError(f"its data has {rank + 2} axes; expected 3 to 5")
    layout = node.attributes.text("layout", f"NC{_SPATIAL[rank]}")
    if layout != f"NC{_SPATIAL[rank]}":
        raise ValueError(
            f"its layout is {layout}; expected NC{_SPATIAL[rank]}. Build the network with channels "
            "second; MXNet computes no other layout on a CPU"
        )
    return rank


def _transposed_pads(
    node: Node, rank: int, strides: list[int], dilation: list[int]
) -> tuple[list[int], list[int]]:
    """Pads and output pads, which follow from the size of the result where that is given.

    Source: DeconvolutionParam::InferPad in src/operator/nn/deconvolution-inl.h of MXNet 1.9.1.
    """
    target = node.attributes.sizes("target_shape", ())
    if not any(target):
        return node.per_axis("pad", rank, 0), node.per_axis("adj", rank, 0)
    window = [(k - 1) * d + 1 for k, d in zip(node.shape(1)[2:], dilation, strict=True)]
    before, extra = [], []
    for size, stride, width, wanted in zip(node.shape()[2:], strides, window, target, strict=True):
        surplus = stride * (size - 1) + width - wanted
        if surplus < 0:
            raise ValueError(f"its target shape {target} is more than the operator produces")
        extra.append(surplus % 2)
        before.append((surplus + 1) // 2)
    return before, extra


def _with_bias(node: Node, result: relax.Expr, *, bias: bool) -> relax.Expr:
    if not bias:
        return result
    shape = (1, -1, *[1] * (node.rank() - 2))
    return R.add(node.emit(result), node.emit(R.reshape(node.operand(2), shape)))
