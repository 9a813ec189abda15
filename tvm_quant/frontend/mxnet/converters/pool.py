"""Pooling, and pooling to a given size.

Source: src/operator/nn/pool.h of MXNet 1.9.1.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tvm import relax

from tvm_quant.frontend.mxnet.converters.conv import pads, spatial_rank
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
    ceil, window = _CEIL[convention], node.attributes.sizes("kernel")
    _refuse_empty_windows(node, window, ceil)
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


def _sum(node: Node, window: tuple[int, ...], *, ceil: bool) -> relax.Expr:
    """An average times its count; windows that are not full are filled up with zeros first."""
    rank = len(window)
    if ceil:
        sizes = zip(node.shape()[2:], pads(node, rank), window, _strides(node, rank), strict=True)
        width = [0, 0, 0, 0]
        for size, pad, extent, stride in sizes:
            width += [0, -(size + 2 * pad - extent) % stride]
        node = replace(node, inputs=[node.emit(R.nn.pad(node.data, width))])
    average = _windows(node, _AVERAGE[rank], window, count_include_pad=True)
    return R.multiply(node.emit(average), node.scalar(math.prod(window)))


def _refuse_empty_windows(node: Node, window: tuple[int, ...], ceil: bool) -> None:
    """MXNet gives a maximum of nothing there."""
    rank = len(window)
    sizes = zip(node.shape()[2:], pads(node, rank), window, _strides(node, rank), strict=True)
    for size, pad, extent, stride in sizes:
        steps = -(-(size + 2 * pad - extent) // stride) if ceil else 0
        if steps * stride >= size + pad:
            raise ValueError(
                "its last window lies behind the data; use the convention 'valid', or less padding"
            )


def _strides(node: Node, rank: int) -> tuple[int, ...]:
    return node.attributes.sizes("stride", (1,) * rank) or (1,) * rank


def _windows(node: Node, operator: object, window: tuple[int, ...], **more: bool) -> relax.Expr:
    assert callable(operator)
    rank = len(window)
    return operator(
        node.data,
        pool_size=list(window),
        strides=list(_strides(node, rank)),
        padding=list(pads(node, rank)) * 2,
        **more,
    )
