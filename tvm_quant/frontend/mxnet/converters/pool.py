"""Pooling, and pooling to a given size.

Windows that reach beyond the padding (convention "full") count less there: MXNet divides an average
by the elements up to the end of the padding, TVM by all or by those of the data alone. So the
padding of such an average is put on first.

Source: src/operator/nn/pool.h of MXNet 1.9.1.
"""

from __future__ import annotations

import math

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
    window = node.attributes.sizes("kernel")
    if kind == "max":
        return _windows(node, _MAX[rank], node.data, window, pads(node, rank), _CEIL[convention])
    average = _average(node, window, ceil=_CEIL[convention], whole=kind == "sum")
    if kind == "avg":
        return average
    return R.multiply(node.emit(average), node.scalar(math.prod(window)))


def adaptive_average(node: Node) -> relax.Expr:
    """`_contrib_AdaptiveAvgPooling2D`: output_size is one number, two, or missing for 1 x 1."""
    size = node.attributes.sizes("output_size", (1,)) or (1,)
    if set(size) == {1}:
        return R.mean(node.data, [2, 3], keepdims=True)
    return R.nn.adaptive_avg_pool2d(node.data, size * 2 if len(size) == 1 else size)


def _average(node: Node, window: tuple[int, ...], *, ceil: bool, whole: bool) -> relax.Expr:
    rank = len(window)
    data, padding, count = node.data, pads(node, rank), whole
    if node.attributes.flag("count_include_pad", default=True) and not whole:
        count = not (ceil and _reaches_beyond(node, window))
        if not count and any(padding):
            width = [0, 0, 0, 0, *(size for pad in padding for size in (pad, pad))]
            data, padding = node.emit(R.nn.pad(data, width)), (0,) * rank
    return _windows(node, _AVERAGE[rank], data, window, padding, ceil, count_include_pad=count)


def _reaches_beyond(node: Node, window: tuple[int, ...]) -> bool:
    """Whether the last window is not full."""
    rank = len(window)
    strides = node.attributes.sizes("stride", (1,) * rank) or (1,) * rank
    sizes = zip(node.shape()[2:], pads(node, rank), window, strides, strict=True)
    return any((size + 2 * pad - width) % stride for size, pad, width, stride in sizes)


def _windows(
    node: Node,
    operator: object,
    data: relax.Expr,
    window: tuple[int, ...],
    padding: tuple[int, ...],
    ceil: bool,
    **more: bool,
) -> relax.Expr:
    assert callable(operator)
    rank = len(window)
    return operator(
        data,
        pool_size=list(window),
        strides=list(node.attributes.sizes("stride", (1,) * rank) or (1,) * rank),
        padding=list(padding) * 2,
        ceil_mode=ceil,
        **more,
    )
