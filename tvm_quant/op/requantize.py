"""`tvm_quant.requantize`: from an accumulator to the codes of the next tensor.

    float        q = clamp(round(float32(acc) * multiplier) + zero_point, qmin, qmax)
    fixed_point  q = clamp((high_mul(acc << left, multiplier) >> right) + zero_point, qmin, qmax)
                 with a Q31 multiplier and TFLite's two roundings
    ruy          the same, but for ties of the shift
    half_up      q = clamp((((acc << left) * multiplier + half) >> 31 + right) + zero_point, ...)
                 with a Q31 multiplier and one rounding
    half_away    the same of the magnitude, with the sign of the accumulator
    shift        q = clamp((acc + 2**(shift - 1) >> shift) + zero_point, qmin, qmax)

The order of `float` is fixed (multiply, round, add), so that no fused multiply-add can change a
bit. Rounding of `float` is to nearest, ties to even; of `fixed_point`, ties up in the product and
away from zero in the shift; of the others, ties up. Integers are exact for any accumulator below
2**62: the product with the multiplier is taken in two halves, so it never leaves 64 bits.

Source: Jacob et al., CVPR 2018, arXiv:1712.05877, section 2.2; for `fixed_point` the description of
SaturatingRoundingDoublingHighMul and RoundingDivideByPOT in gemmlowp's documentation; `ruy` and
`half_up` are what TFLite computes with its kernel library of that name, and where it is built with
one rounding.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
from tvm import relax, te, tirx
from tvm.relax.transform.legalize_ops.common import register_legalize

from tvm_quant.errors import CalibrationError
from tvm_quant.ir import constant
from tvm_quant.op.layout import elementwise_layout
from tvm_quant.op.register import dict_attrs, register_op
from tvm_quant.op.simulated_quantize import load_broadcast

Array = npt.NDArray[Any]

#: Bits of an accumulator after its shift to the left. What would need more saturates every grid.
ROOM_BITS = 62


class RequantizeMode(str, Enum):
    """How an accumulator is scaled to the next tensor's grid."""

    FLOAT = "float"  # float32 multiplier: exact on every backend, fastest on CPUs
    FIXED_POINT = "fixed_point"  # 31-bit multiplier and shift: no float unit needed
    RUY = "ruy"  # the same with ties up
    HALF_UP = "half_up"  # 31-bit multiplier and shift with one rounding
    HALF_AWAY = "half_away"  # the same with ties away from zero
    SHIFT = "shift"  # power of two: VTA


def requantize(
    data: relax.Expr,
    multiplier: npt.ArrayLike,
    zero_point: npt.ArrayLike,
    *,
    dtype: str,
    qmin: int,
    qmax: int,
    mode: RequantizeMode = RequantizeMode.FLOAT,
) -> relax.Call:
    """Scale `data` to another grid.

    Args:
        data: integers of any width, any shape, below 2**62.
        multiplier: input scale / output scale as float64, > 0; shape () or of data's rank,
            broadcastable.
        zero_point: int32 of the output, shape () or broadcastable to data.
        dtype: of the result.
        qmin, qmax: bounds of the result, at most 2**24; a fused clip narrows them.
        mode: see `RequantizeMode`; SHIFT wants powers of two.

    Returns:
        A call of shape of `data` and type `dtype`.

    Raises:
        CalibrationError: a multiplier is not a positive number.
    """
    mantissa, shift = _encode(multiplier, mode)
    return scaled(data, mantissa, shift, zero_point, dtype=dtype, qmin=qmin, qmax=qmax, mode=mode)


def scaled(
    data: relax.Expr,
    mantissa: Array,
    shift: Array,
    zero_point: npt.ArrayLike,
    *,
    dtype: str,
    qmin: int,
    qmax: int,
    mode: RequantizeMode,
) -> relax.Call:
    """`requantize` by a multiplier in parts, where another tool does not normalize the mantissa."""
    attrs = dict_attrs(mode=mode.value, dtype=dtype, qmin=int(qmin), qmax=int(qmax))
    zero = np.asarray(zero_point, "int32")
    operands = [data, constant(mantissa), constant(shift), constant(zero)]
    return relax.Call(REQUANTIZE, operands, attrs)


def requantize_numpy(
    data: npt.ArrayLike,
    multiplier: npt.ArrayLike,
    zero_point: npt.ArrayLike,
    *,
    dtype: str,
    qmin: int,
    qmax: int,
    mode: RequantizeMode = RequantizeMode.FLOAT,
) -> Array:
    """NumPy reference of `requantize`, with the same arguments.

    >>> requantize_numpy([10, 11], 0.5, 0, dtype="int8", qmin=-128, qmax=127).tolist()
    [5, 6]
    """
    mantissa, shift = _encode(multiplier, mode)
    steps = _SCALE_NUMPY[mode](np.asarray(data), mantissa, shift.astype("int64"))
    return np.asarray(np.clip(steps + np.asarray(zero_point), qmin, qmax), dtype)


def is_requantize(expr: relax.Expr) -> TypeGuard[relax.Call]:
    """Whether `expr` is a call of this op."""
    return isinstance(expr, relax.Call) and expr.op == REQUANTIZE


def fixed_point_multiplier(multiplier: npt.ArrayLike) -> tuple[Array, Array]:
    """Split factors into Q31 mantissas and shifts: `m ~= mantissa * 2**-31 * 2**shift`.

    Args:
        multiplier: float64, >= 0, any shape.

    Returns:
        (mantissa, shift): int32 in [2**30, 2**31) (0 for 0) and int32, positive is left.

    >>> [int(part) for part in fixed_point_multiplier(0.75)]
    [1610612736, 0]
    """
    fraction, exponent = np.frexp(np.asarray(multiplier, "float64"))
    mantissa = np.floor(fraction * 2.0**31 + 0.5).astype("int64")
    carry = mantissa == 1 << 31
    mantissa = np.where(carry, 1 << 30, mantissa)
    exponent = np.where(mantissa == 0, 0, exponent + carry)
    vanishing = exponent < -ROOM_BITS
    mantissa, exponent = np.where(vanishing, 0, mantissa), np.where(vanishing, 0, exponent)
    return mantissa.astype("int32"), np.minimum(exponent, 31).astype("int32")


def _encode_float(scale: Array) -> tuple[Array, Array]:
    return scale.astype("float32"), np.zeros((), "int32")


def _encode_shift(scale: Array) -> tuple[Array, Array]:
    right = np.clip(np.round(-np.log2(scale)), -ROOM_BITS, ROOM_BITS)
    return np.ones((), "float32"), right.astype("int32")


_ENCODE = {
    RequantizeMode.FLOAT: _encode_float,
    RequantizeMode.FIXED_POINT: fixed_point_multiplier,
    RequantizeMode.RUY: fixed_point_multiplier,
    RequantizeMode.HALF_UP: fixed_point_multiplier,
    RequantizeMode.HALF_AWAY: fixed_point_multiplier,
    RequantizeMode.SHIFT: _encode_shift,
}


def _encode(multiplier: npt.ArrayLike, mode: RequantizeMode) -> tuple[Array, Array]:
    scale = np.asarray(multiplier, "float64")
    if not (np.isfinite(scale) & (scale > 0)).all():
        raise CalibrationError(
            f"requantize: the multiplier holds {scale.min()} to {scale.max()}; expected positive "
            "numbers. A quantizer has no usable scale: check its calibration."
        )
    return _ENCODE[mode](scale)


def _scale_float_numpy(acc: Array, mantissa: Array, _shift: Array) -> Array:
    return np.asarray(np.round(acc.astype("float32") * mantissa), "float64")


def _scale_fixed_point_numpy(acc: Array, mantissa: Array, shift: Array) -> Array:
    high, right = _high_numpy(acc, mantissa, shift, rounded=True)
    mask = (np.int64(1) << right) - 1
    threshold = (mask >> 1) + (high < 0)
    return np.asarray((high >> right) + ((high & mask) > threshold))


def _scale_ruy_numpy(acc: Array, mantissa: Array, shift: Array) -> Array:
    high, right = _high_numpy(acc, mantissa, shift, rounded=True)
    return np.asarray((high + _half_numpy(right)) >> right)


def _scale_half_up_numpy(acc: Array, mantissa: Array, shift: Array) -> Array:
    high, right = _high_numpy(acc, mantissa, shift, rounded=shift >= 0)
    return np.asarray((high + _half_numpy(right)) >> right)


def _scale_half_away_numpy(acc: Array, mantissa: Array, shift: Array) -> Array:
    magnitude = _scale_half_up_numpy(np.abs(acc.astype("int64")), mantissa, shift)
    return np.asarray(np.where(acc < 0, -magnitude, magnitude))


def _high_numpy(
    acc: Array, mantissa: Array, shift: Array, rounded: npt.ArrayLike
) -> tuple[Array, Array]:
    """The product with a Q31 multiplier in whole steps, and how far it is to go to the right."""
    wide = _shift_left_numpy(acc, np.maximum(shift, 0))
    factor = mantissa.astype("int64")
    low = (wide & ((1 << 31) - 1)) * factor + np.where(rounded, 1 << 30, 0)
    return np.asarray((wide >> 31) * factor + (low >> 31)), np.maximum(-shift, 0)


def _scale_shift_numpy(acc: Array, _mantissa: Array, shift: Array) -> Array:
    right = np.maximum(shift, 0)
    return np.asarray((_shift_left_numpy(acc, np.maximum(-shift, 0)) + _half_numpy(right)) >> right)


def _half_numpy(right: Array) -> Array:
    return np.where(right > 0, np.int64(1) << np.maximum(right - 1, 0), 0)


def _shift_left_numpy(acc: Array, left: Array) -> Array:
    limit = np.int64(1 << ROOM_BITS) >> left
    return np.asarray(np.clip(acc.astype("int64"), -limit, limit) << left)


_SCALE_NUMPY = {
    RequantizeMode.FLOAT: _scale_float_numpy,
    RequantizeMode.FIXED_POINT: _scale_fixed_point_numpy,
    RequantizeMode.RUY: _scale_ruy_numpy,
    RequantizeMode.HALF_UP: _scale_half_up_numpy,
    RequantizeMode.HALF_AWAY: _scale_half_away_numpy,
    RequantizeMode.SHIFT: _scale_shift_numpy,
}


REQUANTIZE = register_op(
    "tvm_quant.requantize",
    "Scale an accumulator to the codes of another grid.",
    [
        ("data", "integers, any shape"),
        ("multiplier", "float32, or int32 in Q31; scalar or broadcastable to data"),
        ("shift", "int32, left for fixed_point, right for shift; scalar or broadcastable to data"),
        ("zero_point", "int32; scalar or broadcastable to data"),
    ],
    lambda call, _builder: relax.TensorType(call.args[0].ty.shape, str(call.attrs["dtype"])),
    layout=elementwise_layout,
)


@register_legalize("tvm_quant.requantize")
def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    scale = _LOWER[RequantizeMode(str(call.attrs["mode"]))]
    qmin, qmax = int(call.attrs["qmin"]), int(call.attrs["qmax"])
    dtype = str(call.attrs["dtype"])

    def compute(data: te.Tensor, mantissa: Any, shift: Any, zero_point: Any) -> te.Tensor:
        def element(*index: tirx.Var) -> tirx.PrimExpr:
            operands = (load_broadcast(tensor, index) for tensor in (mantissa, shift))
            steps = scale(data(*index), *operands)
            wide = steps.ty.dtype if hasattr(steps, "ty") else steps.dtype
            code = steps + load_broadcast(zero_point, index).astype(wide)
            clamped = te.max(te.min(code, te.const(qmax, wide)), te.const(qmin, wide))
            return clamped.astype(dtype)

        return te.compute(data.shape, element, name="requantize")

    return builder.call_te(compute, *call.args, primfunc_name_hint="requantize")


def _lower_float(
    acc: tirx.PrimExpr, mantissa: tirx.PrimExpr, _shift: tirx.PrimExpr
) -> tirx.PrimExpr:
    return te.round(acc.astype("float32") * mantissa)


def _lower_fixed_point(
    acc: tirx.PrimExpr, mantissa: tirx.PrimExpr, shift: tirx.PrimExpr
) -> tirx.PrimExpr:
    high, right = _high(acc, mantissa, shift.astype("int64"), _int64(1 << 30))
    mask = (_int64(1) << right) - _int64(1)
    threshold = (mask >> _int64(1)) + (high < 0).astype("int64")
    return (high >> right) + ((high & mask) > threshold).astype("int64")


def _lower_ruy(acc: tirx.PrimExpr, mantissa: tirx.PrimExpr, shift: tirx.PrimExpr) -> tirx.PrimExpr:
    high, right = _high(acc, mantissa, shift.astype("int64"), _int64(1 << 30))
    return (high + _half(right)) >> right


def _lower_half_up(
    acc: tirx.PrimExpr, mantissa: tirx.PrimExpr, shift: tirx.PrimExpr
) -> tirx.PrimExpr:
    shift = shift.astype("int64")
    added = tirx.Select(shift >= 0, _int64(1 << 30), _int64(0))
    high, right = _high(acc, mantissa, shift, added)
    return (high + _half(right)) >> right


def _lower_half_away(
    acc: tirx.PrimExpr, mantissa: tirx.PrimExpr, shift: tirx.PrimExpr
) -> tirx.PrimExpr:
    wide = acc.astype("int64")
    negative = wide < _int64(0)
    magnitude = _lower_half_up(tirx.Select(negative, -wide, wide), mantissa, shift)
    return tirx.Select(negative, -magnitude, magnitude)


def _high(
    acc: tirx.PrimExpr, mantissa: tirx.PrimExpr, shift: tirx.PrimExpr, added: tirx.PrimExpr
) -> tuple[tirx.PrimExpr, tirx.PrimExpr]:
    factor = mantissa.astype("int64")
    wide = _shift_left(acc, te.max(shift, _int64(0)))
    low = (wide & _int64((1 << 31) - 1)) * factor + added
    return (wide >> _int64(31)) * factor + (low >> _int64(31)), te.max(-shift, _int64(0))


def _lower_shift(
    acc: tirx.PrimExpr, _mantissa: tirx.PrimExpr, shift: tirx.PrimExpr
) -> tirx.PrimExpr:
    shift = shift.astype("int64")
    right = te.max(shift, _int64(0))
    return (_shift_left(acc, te.max(-shift, _int64(0))) + _half(right)) >> right


def _half(right: tirx.PrimExpr) -> tirx.PrimExpr:
    half = _int64(1) << te.max(right - _int64(1), _int64(0))
    return tirx.Select(right > 0, half, _int64(0))


def _shift_left(acc: tirx.PrimExpr, left: tirx.PrimExpr) -> tirx.PrimExpr:
    limit = _int64(1 << ROOM_BITS) >> left
    return te.max(te.min(acc.astype("int64"), limit), -limit) << left


def _int64(value: int) -> tirx.PrimExpr:
    return te.const(value, "int64")


_LOWER = {
    RequantizeMode.FLOAT: _lower_float,
    RequantizeMode.FIXED_POINT: _lower_fixed_point,
    RequantizeMode.RUY: _lower_ruy,
    RequantizeMode.HALF_UP: _lower_half_up,
    RequantizeMode.HALF_AWAY: _lower_half_away,
    RequantizeMode.SHIFT: _lower_shift,
}
