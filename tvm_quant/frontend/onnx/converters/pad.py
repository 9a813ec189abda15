"""Pad in all its modes as `relax.nn.pad`, and the arithmetic of automatic padding."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from tvm_quant.frontend.onnx.converters.node import Node

_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def pad(node: Node) -> relax.Expr | None:
    """Negative pads, which cut, become a slice."""
    before, after = _pads(node)
    mode = _MODES[node.attributes.get("mode", "constant")]
    data = _cut(node, before, after)
    width = [max(size, 0) for pair in zip(before, after, strict=True) for size in pair]
    if not any(width):
        return data
    return relax.op.nn.pad(data, width, pad_mode=mode, pad_value=_pad_value(node))


def auto_pads(node: Node, kernel: Sequence[int]) -> list[int]:
    """Explicit pads (all begins, then all ends) of a convolution or pool.

    Source: ONNX operators Conv and MaxPool; the output has ceil(input / stride) elements.
    """
    rank = node.spatial_rank()
    mode = node.attributes.get("auto_pad", "NOTSET")
    if mode == "NOTSET":
        return [int(p) for p in node.attributes.get("pads", [0] * (2 * rank))]
    if mode == "VALID":
        return [0] * (2 * rank)
    strides = node.attributes.get("strides", [1] * rank)
    dilations = node.attributes.get("dilations", [1] * rank)
    begins, ends = [], []
    for size, k, s, d in zip(node.shape()[2:], kernel, strides, dilations, strict=True):
        total = _same_pad(size, (k - 1) * d + 1, s)
        small, large = total // 2, total - total // 2
        begins.append(small if mode == "SAME_UPPER" else large)
        ends.append(large if mode == "SAME_UPPER" else small)
    return begins + ends


def _same_pad(size: int | None, extent: int, stride: int) -> int:
    if stride == 1:
        return extent - 1
    if size is None:
        raise ValueError("automatic padding with a stride depends on an input size that is open")
    return max((-(-size // stride) - 1) * stride + extent - size, 0)


def _pads(node: Node) -> tuple[list[int], list[int]]:
    if node.opset < 11:
        pads = node.attributes["pads"]
    elif node.is_computed(1):
        raise ValueError("the pads are computed at run time; only constant pads are supported")
    else:
        pads = node.constant(1)
    values = [int(p) for p in pads]
    half, rank = len(values) // 2, len(node.shape())
    axes = node.constant(3)
    if node.is_computed(3):
        raise ValueError("the axes are computed at run time; only constant axes are supported")
    positions = range(rank) if axes is None else [int(a) % rank for a in axes]
    before, after = [0] * rank, [0] * rank
    for index, axis in enumerate(positions):
        before[axis], after[axis] = values[index], values[half + index]
    return before, after


def _pad_value(node: Node) -> float:
    if node.opset < 11:
        return float(node.attributes.get("value", 0.0))
    if node.is_computed(2):
        raise ValueError("the padding value is computed at run time; only constants are supported")
    value = node.constant(2)
    return 0.0 if value is None or value.size == 0 else float(value.item())


def _cut(node: Node, before: list[int], after: list[int]) -> relax.Expr:
    axes = [i for i, sizes in enumerate(zip(before, after, strict=True)) if min(sizes) < 0]
    if not axes:
        return node.data
    extent = node.data.ty.shape
    begin = [max(-before[i], 0) for i in axes]
    end = [extent[i] - max(-after[i], 0) for i in axes]
    return node.builder.emit(relax.op.strided_slice(node.data, axes, begin, end))
