"""Operators whose integers other tools compute in a way of their own, by convention.

A row is a rule for one operator in front of a quantizer of one convention, and says which operands
it takes. Where there is no row, the rule of the operator's role holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from tvm import relax

from tvm_quant.ir import constant, constant_value, op_name
from tvm_quant.op import (
    Convention,
    RequantizeMode,
    Rounding,
    fixed_point_multiplier,
    requantize,
    requantize_numpy,
    round_numpy,
    scaled,
)
from tvm_quant.transform.integer.emitter import Emitter, rank, wide_dtype
from tvm_quant.transform.integer.float32_pairs import (
    product_in_float32,
    sum_in_float32,
    two_byte_tensors,
)
from tvm_quant.transform.integer.interpolate import (
    resize_by_eleven_bits,
    resize_by_ten_bits,
)
from tvm_quant.transform.integer.mean import realize_mean
from tvm_quant.transform.integer.value import Accumulator, Array, Codes, Value, table_of

Rule = Callable[[Emitter, relax.Call, list[Value]], Value | None]
R = relax.op

#: Bits that TFLite's sums have below the point, by the width of the codes.
SUM_BITS = {8: 20, 16: 15}

#: Bits of XNNPACK's multipliers of sums.
MULTIPLIER_BITS = 20

_SIGN = {"relax.add": 1, "relax.subtract": -1}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A rule and the operands that it takes."""

    rule: Rule
    takes: Callable[[list[Value]], bool]


def rule_for(emitter: Emitter, call: relax.Call, operands: list[Value]) -> Rule | None:
    """The rule for a call that a quantizer reads, by the convention of that.

    None if there is no row, it does not take these operands, or something is computed between.
    """
    row = ROWS.get((emitter.convention, str(op_name(call))))
    if row is None or emitter.behind is None:
        return None
    return row.rule if row.takes(operands) else None


def two_tensors(operands: list[Value]) -> bool:
    """Two tensors of codes with one scale each."""
    codes = [value for value in operands if isinstance(value, Codes) and value.scale.size == 1]
    known = [value for value in codes if constant_value(value.expr) is not None]
    return len(codes) == 2 and len(known) < 2 and all(c.spec.bits in SUM_BITS for c in codes)


def one_tensor(operands: list[Value]) -> bool:
    """A tensor of codes with one scale."""
    return isinstance(operands[0], Codes) and operands[0].scale.size == 1


# Sums ---------------------------------------------------------------------------------


def sum_by_three_multipliers(
    emitter: Emitter, call: relax.Call, operands: list[Value]
) -> Accumulator:
    """TFLite's ADD and SUB: both sides to twice the larger scale, with 20 bits below the point.

    The third multiplier is that of the quantizer behind.
    """
    codes = [value for value in operands if isinstance(value, Codes)]
    bits = min(SUM_BITS[value.spec.bits] for value in codes)
    twice = 2 * max(float(value.scale) for value in codes)
    left, right = (_scaled_codes(emitter, value, bits, twice) for value in codes)
    operator = R.add if _SIGN[str(op_name(call))] == 1 else R.subtract
    bound = sum(value.largest * float(value.scale) / twice * 2.0**bits + 1 for value in codes)
    return Accumulator(
        expr=emitter.emit(operator(left, right)),
        scale=np.asarray(twice / 2.0**bits),
        bound=np.asarray(bound),
    )


def _scaled_codes(emitter: Emitter, codes: Codes, bits: int, twice: float) -> relax.Expr:
    """A table of each code's steps."""
    limits = np.iinfo("int32")
    steps = requantize_numpy(
        (_levels(codes) - int(codes.zero_point)) << bits,
        float(codes.scale) / twice,
        0,
        dtype="int32",
        qmin=limits.min,
        qmax=limits.max,
        mode=RequantizeMode.FIXED_POINT,
    )
    return emitter.look_up(table_of(codes), steps)


def sum_by_shift(emitter: Emitter, call: relax.Call, operands: list[Value]) -> Codes:
    """XNNPACK's sums: multipliers of 21 bits at the scale of the result, then one shift.

    shift = 20 - floor(log2(max(s_a, s_b) / s_y)),  m = round(s / s_y * 2**shift)
    y = ((a - z_a) m_a + (b - z_b) m_b + 2**(shift - 1) >> shift) + z_y
    """
    wanted = emitter.behind
    assert wanted is not None, "the convention comes from a quantizer"
    codes = [value for value in operands if isinstance(value, Codes)]
    ratios = [np.float32(value.scale) / np.float32(wanted.scale) for value in codes]
    shift = MULTIPLIER_BITS - int(np.floor(np.log2(max(ratios))))
    signs = (1, _SIGN[str(op_name(call))])
    factors = [
        sign * int(np.round(np.float64(ratio) * 2.0**shift))
        for sign, ratio in zip(signs, ratios, strict=True)
    ]
    bound = sum(value.largest * abs(m) for value, m in zip(codes, factors, strict=True))
    dtype = wide_dtype(bound + 2.0**shift)
    terms = [
        R.multiply(emitter.centred(value, dtype), constant(np.asarray(factor, dtype)))
        for value, factor in zip(codes, factors, strict=True)
    ]
    return _codes(emitter, R.add(*terms), 2.0**-shift, wanted, RequantizeMode.SHIFT)


def _codes(
    emitter: Emitter, expr: relax.Expr, multiplier: float, wanted: Codes, mode: RequantizeMode
) -> Codes:
    spec = wanted.spec
    call = requantize(
        emitter.emit(expr),
        multiplier,
        wanted.zero_point,
        dtype=spec.dtype,
        qmin=spec.qmin,
        qmax=spec.qmax,
        mode=mode,
    )
    return replace(wanted, expr=emitter.emit(call, "_q"))


# Products and leaks -------------------------------------------------------------------


def product_by_one_multiplier(emitter: Emitter, call: relax.Call, operands: list[Value]) -> Codes:
    """TFLite's MUL: the multiplier is computed in float32."""
    wanted = emitter.behind
    assert wanted is not None, "the convention comes from a quantizer"
    left, right = (value for value in operands if isinstance(value, Codes))
    dtype = wide_dtype(left.largest * right.largest)
    product = R.multiply(emitter.centred(left, dtype), emitter.centred(right, dtype))
    scales = [np.float32(codes.scale) for codes in (left, right, wanted)]
    ratio = float(scales[0] * scales[1] / scales[2])
    return _codes(emitter, product, ratio, wanted, RequantizeMode.FIXED_POINT)


def leak_by_two_multipliers(emitter: Emitter, call: relax.Call, operands: list[Value]) -> Codes:
    """TFLite's LEAKY_RELU: a multiplier for each sign."""
    wanted, codes = emitter.behind, operands[0]
    assert wanted is not None and isinstance(codes, Codes), "one_tensor() asks"
    steps = _levels(codes) - int(codes.zero_point)
    ratio = np.float32(codes.scale) / np.float32(wanted.scale)
    slope = np.float32(codes.scale) * np.float32(call.attrs.alpha) / np.float32(wanted.scale)
    positive, negative = (
        requantize_numpy(
            steps,
            float(factor),
            wanted.zero_point,
            dtype=wanted.spec.dtype,
            qmin=wanted.spec.qmin,
            qmax=wanted.spec.qmax,
            mode=RequantizeMode.FIXED_POINT,
        )
        for factor in (ratio, slope)
    )
    table = emitter.look_up(table_of(codes), np.where(steps >= 0, positive, negative))
    return replace(wanted, expr=table)


def leak_by_eight_bits(emitter: Emitter, call: relax.Call, operands: list[Value]) -> Codes | None:
    """XNNPACK's: multipliers of 8 bits below the point."""
    wanted, codes = emitter.behind, operands[0]
    assert wanted is not None and isinstance(codes, Codes), "one_tensor() asks"
    steps = _levels(codes) - int(codes.zero_point)
    ratio = np.float32(codes.scale) / np.float32(wanted.scale)
    factors = [
        int(np.round(np.float32(256) * factor))
        for factor in (ratio, ratio * np.float32(call.attrs.alpha))
    ]
    scaled_steps = (steps * np.where(steps >= 0, *factors) + 128) >> 8
    known = np.clip(scaled_steps + wanted.zero_point, wanted.spec.qmin, wanted.spec.qmax)
    return replace(wanted, expr=emitter.look_up(table_of(codes), known.astype(wanted.spec.dtype)))


def _levels(codes: Codes) -> Array:
    return np.arange(codes.spec.qmin, codes.spec.qmax + 1)


# Averages -----------------------------------------------------------------------------


def average_of_codes(emitter: Emitter, call: relax.Call, operands: list[Value]) -> Value | None:
    """TFLite's AVERAGE_POOL_2D: the codes themselves are averaged, ties away from zero.

    Padding is not counted.
    """
    codes = operands[0]
    assert isinstance(codes, Codes), "one_tensor() asks"
    raw = replace(codes, zero_point=np.zeros_like(codes.zero_point))
    total = realize_mean(emitter, call, [raw])
    if not isinstance(total, Accumulator):
        return None
    count = np.round(codes.scale / total.scale)
    positive, negative = (_quotient(total.expr, count, total.dtype, sign) for sign in (1, -1))
    mean = emitter.emit(R.subtract(positive, negative))
    return replace(codes, expr=emitter.emit(R.astype(mean, codes.spec.dtype), "_q"))


def _quotient(total: relax.Expr, count: Array, dtype: str, sign: int) -> relax.Expr:
    """Of the part of one sign, rounded half up."""
    part = R.maximum(total if sign == 1 else R.negative(total), constant(np.zeros((), dtype)))
    half = constant((count // 2).astype(dtype))
    return R.floor_divide(R.add(part, half), constant(count.astype(dtype)))


def mean_by_one_multiplier(
    emitter: Emitter, call: relax.Call, operands: list[Value]
) -> Value | None:
    """TFLite's MEAN: the multiplier takes the count in, truncated."""
    wanted = emitter.behind
    total = realize_mean(emitter, call, operands)
    codes = operands[0]
    assert wanted is not None and isinstance(codes, Codes), "one_tensor() asks"
    if not isinstance(total, Accumulator) or total.scale.size != 1:
        return None
    count = _count(codes, total)
    mantissa, shift = (int(part) for part in fixed_point_multiplier(codes.scale / wanted.scale))
    bits = max(0, min(count.bit_length() - 1, 32, 31 + shift))
    total = emitter.add_offset(total)
    spec = wanted.spec
    call = scaled(
        total.expr,
        np.asarray((mantissa << bits) // count, "int32"),
        np.asarray(shift - bits, "int32"),
        wanted.zero_point,
        dtype=spec.dtype,
        qmin=spec.qmin,
        qmax=spec.qmax,
        mode=RequantizeMode.FIXED_POINT,
    )
    return replace(wanted, expr=emitter.emit(call, "_q"))


def mean_of_codes(emitter: Emitter, call: relax.Call, operands: list[Value]) -> Value | None:
    """TFLite's optimized MEAN over height and width: of the codes themselves, in float32.

    y = round(sum x * (s_x / (n s_y))) + z_y - round(z_x s_x / s_y)
    """
    wanted, codes = emitter.behind, operands[0]
    assert wanted is not None and isinstance(codes, Codes), "one_tensor() asks"
    axes = [int(axis) for axis in call.attrs.axis or ()]
    if sorted(axes) != [1, 2] or not call.attrs.keepdims or rank(codes.expr) != 4:
        return mean_by_one_multiplier(emitter, call, operands)
    raw = replace(codes, zero_point=np.zeros_like(codes.zero_point))
    total = realize_mean(emitter, call, [raw])
    assert isinstance(total, Accumulator), "realize_mean() sums axes of codes with one scale"
    count, scales = _count(codes, total), (np.float32(codes.scale), np.float32(wanted.scale))
    moved = round_numpy(np.float32(codes.zero_point) * scales[0] / scales[1], Rounding.HALF_UP)
    result = replace(wanted, zero_point=wanted.zero_point - int(moved))
    ratio = np.float64(scales[0] / (np.float32(count) * scales[1]))
    summed = _codes(emitter, total.expr, ratio, result, RequantizeMode.RUY)
    return replace(wanted, expr=summed.expr)


def mean_by_one_quotient(emitter: Emitter, call: relax.Call, operands: list[Value]) -> Value | None:
    """ONNX Runtime's QLinearGlobalAveragePool: by s_x / (s_y n), each step in float32."""
    wanted, codes = emitter.behind, operands[0]
    assert wanted is not None and isinstance(codes, Codes), "one_tensor() asks"
    total = realize_mean(emitter, call, operands)
    assert isinstance(total, Accumulator), "realize_mean() sums axes of codes with one scale"
    total = emitter.add_offset(total)
    count = np.float32(_count(codes, total))
    ratio = np.float32(codes.scale) / (np.float32(wanted.scale) * count)
    return _codes(emitter, total.expr, float(ratio), wanted, RequantizeMode.FLOAT)


def _count(codes: Codes, total: Accumulator) -> int:
    return round(float(codes.scale) / float(total.scale))


_GEMMLOWP_SUM = Row(rule=sum_by_three_multipliers, takes=two_tensors)
_XNNPACK_SUM = Row(rule=sum_by_shift, takes=two_tensors)

ROWS: dict[tuple[Convention, str], Row] = {
    (Convention.DOUBLE_ROUNDING, "relax.add"): _GEMMLOWP_SUM,
    (Convention.DOUBLE_ROUNDING, "relax.subtract"): _GEMMLOWP_SUM,
    (Convention.DOUBLE_ROUNDING, "relax.nn.avg_pool2d"): Row(
        rule=average_of_codes, takes=one_tensor
    ),
    (Convention.DOUBLE_ROUNDING, "relax.mean"): Row(rule=mean_by_one_multiplier, takes=one_tensor),
    (Convention.DOUBLE_ROUNDING, "relax.multiply"): Row(
        rule=product_by_one_multiplier, takes=two_tensors
    ),
    (Convention.DOUBLE_ROUNDING, "relax.nn.leakyrelu"): Row(
        rule=leak_by_two_multipliers, takes=one_tensor
    ),
    (Convention.DOUBLE_ROUNDING, "relax.image.resize2d"): Row(
        rule=resize_by_ten_bits, takes=one_tensor
    ),
    (Convention.RUY, "relax.mean"): Row(rule=mean_of_codes, takes=one_tensor),
    (Convention.ONNXRUNTIME, "relax.add"): Row(rule=sum_in_float32, takes=two_byte_tensors),
    (Convention.ONNXRUNTIME, "relax.multiply"): Row(
        rule=product_in_float32, takes=two_byte_tensors
    ),
    (Convention.ONNXRUNTIME, "relax.mean"): Row(rule=mean_by_one_quotient, takes=one_tensor),
    (Convention.XNNPACK, "relax.add"): _XNNPACK_SUM,
    (Convention.XNNPACK, "relax.subtract"): _XNNPACK_SUM,
    (Convention.XNNPACK, "relax.nn.leakyrelu"): Row(rule=leak_by_eight_bits, takes=one_tensor),
    (Convention.XNNPACK, "relax.image.resize2d"): Row(rule=resize_by_eleven_bits, takes=one_tensor),
}
