"""Averages: an exact integer sum, with the scale divided by the count."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from tvm_quant.ir import constant, op_name, tensor_shape
from tvm_quant.op import Convention
from tvm_quant.transform.integer.contraction import pad_spatial
from tvm_quant.transform.integer.emitter import Emitter, wide_dtype
from tvm_quant.transform.integer.value import Accumulator, Array, Codes, Value


def realize_mean(emitter: Emitter, call: relax.Call, operands: list[Value]) -> Value | None:
    """mean, average pools.

    Averages of integers meet ties, which a reference that adds up float32 decides by its rounding
    errors: where that is the convention, the average stays one of floats.
    """
    codes = operands[0]
    if not isinstance(codes, Codes) or codes.scale.size != 1:
        return None
    if emitter.convention is Convention.NEAREST:
        return None
    shape = tensor_shape(codes.expr) or ()
    axes = _reduced_axes(call, shape)
    if axes is not None:
        keepdims = op_name(call) != "relax.mean" or bool(call.attrs.keepdims)
        return _sum_axes(emitter, codes, axes, keepdims, math.prod(shape[a] or 1 for a in axes))
    return _sum_windows(emitter, call, codes, shape)


def _reduced_axes(call: relax.Call, shape: tuple[int | None, ...]) -> list[int] | None:
    """Axes that are averaged away whole, or None for windows."""
    attrs = call.attrs
    if op_name(call) == "relax.mean":
        axes = range(len(shape)) if attrs.axis is None else (int(axis) for axis in attrs.axis)
        return [axis % len(shape) for axis in axes]
    spatial = _spatial(str(attrs.layout))
    if op_name(call) == "relax.nn.adaptive_avg_pool2d":
        return spatial
    whole = [shape[axis] for axis in spatial] == [int(size) for size in attrs.pool_size]
    return spatial if whole and not any(int(p) for p in attrs.padding) else None


def _sum_axes(
    emitter: Emitter, codes: Codes, axes: list[int], keepdims: bool, count: int
) -> Accumulator:
    bound = codes.reach * count
    wide = relax.op.astype(codes.expr, wide_dtype(bound))
    return Accumulator(
        expr=emitter.emit(relax.op.sum(wide, axis=axes, keepdims=keepdims)),
        scale=codes.scale.reshape(()) / count,
        bound=np.asarray(bound),
        offset=-codes.zero_point.reshape(()) * count,
    )


def _sum_windows(
    emitter: Emitter, call: relax.Call, codes: Codes, shape: tuple[int | None, ...]
) -> Accumulator | None:
    """A depthwise convolution with ones."""
    layout = str(call.attrs.layout)
    channels = shape[layout.index("C")]
    if channels is None:
        return None
    window = [int(size) for size in call.attrs.pool_size]
    padding = [int(p) for p in call.attrs.padding]
    count = math.prod(window)
    source = codes.expr
    if any(padding):
        zero = float(codes.zero_point)
        source = emitter.emit(pad_spatial(source, padding, layout, zero), "_pad")
    ones = constant(np.ones((channels, 1, *window), "int8"))
    convolution = getattr(relax.op.nn, f"conv{len(window)}d")
    bound = codes.reach * count
    summed = convolution(
        source,
        ones,
        strides=list(call.attrs.strides),
        groups=channels,
        data_layout=layout,
        kernel_layout="OI" + "".join(letter for letter in layout if letter not in "NC"),
        out_dtype=wide_dtype(bound),
    )
    divisor = np.asarray(float(count))
    if any(padding) and not call.attrs.count_include_pad:
        sizes = [shape[axis] for axis in _spatial(layout)]
        counts = _counts(sizes, window, padding, [int(s) for s in call.attrs.strides])
        divisor = np.expand_dims(counts, [axis for axis, x in enumerate(layout) if x in "NC"])
    return Accumulator(
        expr=emitter.emit(summed),
        scale=codes.scale.reshape(()) / divisor,
        bound=np.asarray(bound),
        offset=-codes.zero_point.reshape(()) * count,
    )


def _counts(
    sizes: list[int | None], window: list[int], padding: list[int], strides: list[int]
) -> Array:
    """Elements of the tensor under each window, an array of the output's spatial axes."""
    counts = np.ones(())
    for axis, (size, width, stride) in enumerate(zip(sizes, window, strides, strict=True)):
        assert size is not None, "placement refuses uneven windows on dynamic axes"
        before, after = padding[axis], padding[axis + len(window)]
        inside = np.pad(np.ones(size), (before, after))
        starts = range(0, size + before + after - width + 1, stride)
        counts = np.multiply.outer(
            counts, [inside[start : start + width].sum() for start in starts]
        )
    return counts


def _spatial(layout: str) -> list[int]:
    return [axis for axis, letter in enumerate(layout) if letter not in "NC"]
