"""Pooling, and pooling to a given size.

Source: src/operator/nn/pool.h of MXNet 1.9.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from tvm import relax

from tvm_quant.frontend.mxnet.converters.conv import spatial_rank
from tvm_quant.frontend.mxnet.converters.node import Node

R = relax.op

_MAX = {1: R.nn.max_pool1d, 2: R.nn.max_pool2d, 3: R.nn.max_pool3d}
_AVERAGE = {1: R.nn.avg_pool1d, 2: R.nn.avg_pool2d, 3: R.nn.avg_pool3d}
_WHOLE = {"max": R.max, "avg": R.mean, "sum": R.sum}

#: Whether a last window that is not full counts.
_CEIL = {"valid": False, "full": True}


def pooling(node: Node) -> relax.Expr:
    """Maximum, average and sum; over windows, or over all of each channel."""
    rank, kind = spatial_rank(node), node.attributes.text("pool_type", "max")
    if kind not in _WHOLE:
        raise ValueError(f"its pool type is '{kind}'; supported are {', '.join(_WHOLE)}")
    if node.attributes.flag("global_pool"):
        return _WHOLE[kind](node.data, list(range(2, rank + 2)), keepdims=True)
    convention = node.attributes.text("pooling_convention", "valid")
    if convention not in _CEIL:
        raise ValueError(f"its convention is '{convention}'; supported are {', '.join(_CEIL)}")
    ceil, window = _CEIL[convention], _window(node, rank)
    if ceil:
        _refuse_empty_windows(node, window)
    if kind == "max":
        return _windows(node, _MAX[rank], window, ceil_mode=ceil)
    if kind == "sum":
        return _sum(node, window, ceil=ceil)
    whole = node.attributes.flag("count_include_pad", default=True)
    return _windows(node, _AVERAGE[rank], window, ceil_mode=ceil, count_include_pad=whole)


def adaptive_average(node: Node) -> relax.Expr:
    """`_contrib_AdaptiveAvgPooling2D`: output_size is one number, two, or missing for 1 x 1."""
    size = node.attributes.sizes("output_size", (1,)) or (1,)
    if set(size) == {1}:
        return R.mean(node.data, [2, 3], keepdims=True)
    return R.nn.adaptive_avg_pool2d(node.data, size * 2 if len(size) == 1 else size)


def _window(node: Node, rank: int) -> list[int]:
    if "kernel" not in node.attributes:
        raise ValueError("its attribute 'kernel' is missing")
    return node.per_axis("kernel", rank, 1)


def _sum(node: Node, window: list[int], *, ceil: bool) -> relax.Expr:
    """An average times its count; windows that are not full are filled up with zeros first."""
    if ceil:
        width = [0, 0, 0, 0]
        for size, pad, extent, stride in _axes(node, window):
            width += [0, -(size + 2 * pad - extent) % stride]
        node = replace(node, inputs=[node.emit(R.nn.pad(node.data, width))])
    average = _windows(node, _AVERAGE[len(window)], window, count_include_pad=True)
    return R.multiply(node.emit(average), node.scalar(math.prod(window)))


def _refuse_empty_windows(node: Node, window: list[int]) -> None:
    """MXNet gives a maximum of nothing there."""
    for size, pad, extent, stride in _axes(node, window):
        steps = -(-(size + 2 * pad - extent) // stride)
        if steps * stride >= size + pad:
            raise ValueError(
                "its last window lies behind the data; use the convention 'valid', or less padding"
            )


def _axes(node: Node, window: list[int]) -> Iterator[tuple[int, int, int, int]]:
    """(size, pad, window, stride) of each axis."""
    rank = len(window)
    pads, strides = node.per_axis("pad", rank, 0), node.per_axis("stride", rank, 1)
    return zip(node.shape()[2:], pads, window, strides, strict=True)


def _windows(node: Node, operator: object, window: list[int], **more: bool) -> relax.Expr:
    assert callable(operator)
    rank = len(window)
    return operator(
        node.data,
        pool_size=window,
        strides=node.per_axis("stride", rank, 1),
        padding=node.per_axis("pad", rank, 0) * 2,
        **more,
    )
