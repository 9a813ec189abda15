"""PRelu with slopes of every shape."""

from __future__ import annotations

import numpy as np
from tvm import relax

from tvm_quant.frontend.onnx.converters.node import Node


def prelu(node: Node) -> relax.Expr | None:
    """One slope for all becomes `leakyrelu`, one per channel `nn.prelu`; others are written out.

    A slope of shape (C,) broadcasts along the last axis as ONNX has it; where that cannot be, it is
    meant per channel, as exporters write it.
    """
    data, slope = node.data, node.constant(1)
    if slope is None:
        return None
    if slope.size and np.all(slope == slope.flat[0]):
        return relax.op.nn.leakyrelu(data, float(slope.flat[0]))
    axis = _slope_axis(slope.shape, node.shape())
    if axis is not None:
        return relax.op.nn.prelu(data, relax.const(slope.reshape(-1), str(slope.dtype)), axis)
    dtype = str(data.ty.dtype)
    negative = node.builder.emit(relax.op.less(data, relax.const(0, dtype)))
    scaled = node.builder.emit(relax.op.multiply(data, node.inputs[1]))
    return relax.op.where(negative, scaled, data)


def _slope_axis(slope: tuple[int, ...], data: tuple[int | None, ...]) -> int | None:
    """The one axis of the data along which the slope varies, or None if there are several."""
    varying = [axis for axis, size in enumerate(slope) if size > 1]
    if len(varying) != 1 or len(slope) > len(data):
        return None
    size = slope[varying[0]]
    if len(slope) == 1 and data[-1] != size and len(data) > 1 and data[1] == size:
        return 1
    return len(data) - len(slope) + varying[0]
