"""Linear resizing of codes, (N, H, W, C), as TFLite's kernels and XNNPACK do it.

    y = round((a00 (1 - v) + a10 v) (1 - h) + (a01 (1 - v) + a11 v) h)

on the codes themselves: the weights of a point add up to 1, so the zero point stays where it is.
What differs is how positions and fractions are computed, and where it rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from tvm import relax

from tvm_quant.ir import constant, op_name, tensor_shape
from tvm_quant.transform.integer.emitter import Emitter
from tvm_quant.transform.integer.value import Array, Codes, Value

R = relax.op

#: Bits of the fractions.
TFLITE_BITS, XNNPACK_BITS = 10, 11


@dataclass(frozen=True, kw_only=True)
class Points:
    """For each position of the result along one axis, its neighbours and how far the second is."""

    lower: Array
    upper: Array
    fraction: Array


Locate = Callable[[int, int, str], Points]


def resize_by_ten_bits(emitter: Emitter, call: relax.Call, operands: list[Value]) -> Value | None:
    """TFLite: fractions of 10 bits, ties away from zero; of unsigned codes in float32."""
    codes = operands[0]
    if not _is_linear(call) or not isinstance(codes, Codes):
        return None
    if not codes.spec.signed:
        return _resize_in_float(emitter, call, codes)
    total, dtype = _weighted(emitter, call, codes, _in_ten_bits, TFLITE_BITS)
    half = constant(np.asarray(1 << (2 * TFLITE_BITS - 1), dtype))
    shift = constant(np.asarray(2 * TFLITE_BITS, dtype))
    zero = constant(np.zeros((), dtype))
    positive, negative = (
        R.right_shift(R.add(R.maximum(part, zero), half), shift)
        for part in (total, R.negative(total))
    )
    return _result(emitter, R.subtract(positive, negative), codes)


def resize_by_eleven_bits(
    emitter: Emitter, call: relax.Call, operands: list[Value]
) -> Value | None:
    """XNNPACK: fractions of 11 bits, ties up."""
    codes = operands[0]
    if not _is_linear(call) or not isinstance(codes, Codes):
        return None
    total, dtype = _weighted(emitter, call, codes, _in_eleven_bits, XNNPACK_BITS)
    half = constant(np.asarray(1 << (2 * XNNPACK_BITS - 1), dtype))
    shift = constant(np.asarray(2 * XNNPACK_BITS, dtype))
    return _result(emitter, R.right_shift(R.add(total, half), shift), codes)


def _is_linear(call: relax.Call) -> bool:
    linear = op_name(call) == "relax.image.resize2d" and str(call.attrs.method) == "linear"
    return linear and str(call.attrs.layout) == "NHWC"


def _result(emitter: Emitter, expr: relax.Expr, codes: Codes) -> Codes:
    return replace(codes, expr=emitter.emit(R.astype(expr, codes.spec.dtype), "_q"))


def _weighted(
    emitter: Emitter, call: relax.Call, codes: Codes, locate: Locate, bits: int
) -> tuple[relax.Expr, str]:
    """Sums of neighbours in steps of 2**(-2 bits), and their type."""
    dtype = "int32" if codes.spec.bits <= 8 else "int64"
    data = R.astype(codes.expr, dtype)
    for axis, points in _axes(call, locate):
        terms = []
        for at, weight in (
            (points.lower, (1 << bits) - points.fraction),
            (points.upper, points.fraction),
        ):
            part = R.take(data, constant(at.astype("int32")), axis=axis, mode="clip")
            terms.append(R.multiply(part, constant(_column(weight, axis).astype(dtype))))
        data = emitter.emit(R.add(*terms), "_weighted")
    return data, dtype


def _resize_in_float(emitter: Emitter, call: relax.Call, codes: Codes) -> Codes:
    """The order of operations is that of the kernel, which ends with + 1/2 and a cast."""
    data = emitter.emit(R.astype(codes.expr, "float32"), "_wide")
    (_, rows), (_, columns) = _axes(call, _in_float32)
    one = np.float32(1)
    terms = []
    for at_column, near_column in (
        (columns.lower, one - columns.fraction),
        (columns.upper, columns.fraction),
    ):
        for at_row, near_row in ((rows.lower, one - rows.fraction), (rows.upper, rows.fraction)):
            part = R.take(data, constant(at_row.astype("int32")), axis=1, mode="clip")
            part = R.take(part, constant(at_column.astype("int32")), axis=2, mode="clip")
            part = R.multiply(part, constant(_column(near_row, 1).astype("float32")))
            terms.append(R.multiply(part, constant(_column(near_column, 2).astype("float32"))))
    total = terms[0]
    for term in terms[1:]:
        total = R.add(total, term)
    rounded = R.floor(R.add(emitter.emit(total, "_weighted"), relax.const(0.5, "float32")))
    return _result(emitter, rounded, codes)


def _axes(call: relax.Call, locate: Locate) -> list[tuple[int, Points]]:
    before, after = tensor_shape(call.args[0]) or (), tensor_shape(call) or ()
    mode = str(call.attrs.coordinate_transformation_mode)
    found = []
    for axis in (1, 2):
        size, wanted = before[axis], after[axis]
        assert size is not None and wanted is not None, "TFLite fixes sizes of images"
        found.append((axis, locate(size, wanted, mode)))
    return found


def _column(weight: Array, axis: int) -> Array:
    return weight.reshape((-1, 1, 1) if axis == 1 else (-1, 1))


def _spans(size: int, wanted: int, mode: str) -> tuple[int, int]:
    """What is stretched over what."""
    return (size - 1, wanted - 1) if mode == "align_corners" and wanted > 1 else (size, wanted)


def _in_ten_bits(size: int, wanted: int, mode: str) -> Points:
    span, over = _spans(size, wanted, mode)
    one = 1 << TFLITE_BITS
    step = (one * span + over // 2) // over
    at = np.arange(wanted, dtype="int64") * step
    if mode == "half_pixel":
        at = at + step // 2 - one // 2
    lower = np.maximum(np.trunc(at / one).astype("int64"), 0)
    upper = np.minimum(np.trunc((at + one - 1) / one).astype("int64"), size - 1)
    return Points(lower=lower, upper=upper, fraction=at - one * lower)


def _in_eleven_bits(size: int, wanted: int, mode: str) -> Points:
    span, over = _spans(size, wanted, mode)
    step = np.float32(span) / np.float32(over)
    at = np.arange(wanted, dtype="float32") * step
    if mode == "half_pixel":
        offset = np.float32(0.5) * step - np.float32(0.5)
        at = np.clip(at + offset, np.float32(0), np.float32(size - 1))
    lower = at.astype("int64")
    fraction = np.round((at - lower.astype("float32")) * np.float32(1 << XNNPACK_BITS))
    upper = np.minimum(lower + 1, size - 1)
    return Points(lower=lower, upper=upper, fraction=fraction.astype("int64"))


def _in_float32(size: int, wanted: int, mode: str) -> Points:
    span, over = _spans(size, wanted, mode)
    step = np.float32(span) / np.float32(over)
    at = np.arange(wanted, dtype="float32")
    half = np.float32(0.5)
    at = (at + half) * step - half if mode == "half_pixel" else at * step
    lower = np.maximum(np.floor(at).astype("int64"), 0)
    upper = np.minimum(np.ceil(at).astype("int64"), size - 1)
    return Points(lower=lower, upper=upper, fraction=at - lower.astype("float32"))
