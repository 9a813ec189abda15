"""Operators that move codes: max-pools, and copies by convolutions with ones."""

from __future__ import annotations

import numpy as np
from tvm import relax

from tvm_quant.backend.vta.layer import Convolution, MaxPool
from tvm_quant.backend.vta.match.match import Match, Values, identity, single
from tvm_quant.ir import tensor_shape

Extents = tuple[int, ...]


def max_pool(var: relax.Var, values: Values) -> Match | None:
    """max_pool2d of int8; what ceil_mode adds is padding."""
    call = values[var]
    data, attrs = call.args[0], call.attrs
    before, after = _extents(data), _extents(var)
    plain = str(attrs.layout) == "NCHW" and {int(d) for d in attrs.dilation} == {1}
    if before is None or after is None or not plain:
        return None
    window, strides = ((int(a), int(b)) for a, b in (attrs.pool_size, attrs.strides))
    top, left, bottom, right = map(int, attrs.padding)
    needed = [
        (outputs - 1) * stride + size - extent - start
        for outputs, stride, size, extent, start in zip(
            after[2:], strides, window, before[2:], (top, left), strict=True
        )
    ]
    layer = MaxPool(
        name=str(var.name),
        output=str(var.name),
        data=str(data.name),
        window=window,
        strides=strides,
        padding=(top, left, max(bottom, needed[0]), max(right, needed[1])),
    )
    return single(var, layer, (data,))


def every_nth(var: relax.Var, values: Values) -> Match | None:
    """strided_slice that takes every n-th pixel from the first on: a copy with strides."""
    call = values[var]
    data, (axes, begin, _end, *steps) = call.args[0], call.args[1:]
    before, after = _extents(data), _extents(var)
    if before is None or after is None or not steps or any(map(int, begin.fields)):
        return None
    strides = [1, 1, 1, 1]
    for axis, step in zip(axes.fields, steps[0].fields, strict=True):
        strides[int(axis)] = int(step)
    whole = tuple(-(-extent // step) for extent, step in zip(before, strides, strict=True))
    if min(strides) < 1 or strides[:2] != [1, 1] or after != whole:
        return None
    layer = Convolution(
        name=str(var.name),
        output=str(var.name),
        data=str(data.name),
        weight=identity(before[1]),
        strides=(strides[2], strides[3]),
        groups=before[1],
    )
    return single(var, layer, (data,))


def padded(var: relax.Var, values: Values) -> Match | None:
    """Pad with zeros, of the plane or of channels: a copy with padding, to other channels."""
    call = values[var]
    data, attrs = call.args[0], call.attrs
    before, after = _extents(data), _extents(var)
    if before is None or after is None:
        return None
    zeros = str(attrs.pad_mode) == "constant" and float(attrs.pad_value) == 0
    *samples, first, last, top, bottom, left, right = map(int, attrs.pad_width)
    if not zeros or any(samples) or min(first, last, top, bottom, left, right) < 0:
        return None
    channels = before[1]
    grouped = first == last == 0
    layer = Convolution(
        name=str(var.name),
        output=str(var.name),
        data=str(data.name),
        weight=identity(channels)
        if grouped
        else np.eye(after[1], channels, -first, dtype=np.int8)[:, :, None, None],
        padding=(top, left, bottom, right),
        groups=channels if grouped else 1,
    )
    return single(var, layer, (data,))


def _extents(expr: relax.Expr) -> Extents | None:
    shape = tensor_shape(expr)
    if shape is None or len(shape) != 4 or not isinstance(expr, relax.Var):
        return None
    extents = tuple(extent for extent in shape if extent)
    return extents if len(extents) == len(shape) else None
