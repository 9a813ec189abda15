"""Adds the codes of one tensor to the accumulator of another: the sum behind a residual path.

With codes.scale / acc.scale ~= factor / 2**shift, and steps of acc.scale / 2**bits,

    sum = (acc << bits) + (factor (code - zero_point) + half >> right)       right = shift - bits
                                                                             half = 2**(right - 1)

Rounded to whole steps of the accumulator, the term would put some of the next codes on the other
side of a rounding boundary, and each of those moves many sums in the layers behind. So `bits` is as
large as the type allows. The following requantize takes the finer scale.

Nothing overflows. Let the type hold room + 1 bits beside the sign, n be the largest |code| and
|code - zero_point|, and r = codes.scale / acc.scale.

    term    `shift` is the largest with r 2**shift < 2**(room - b) where n < 2**b, so that
            n factor <= 2**room. If even shift = 0 is too large, n factor <= n (r + 1/2) <= bound.
            zero_point is taken out by a constant, and half <= 2**(room - 1): every partial sum
            stays below 2**(room + 1).
    sum     factor / 2**shift <= r + 1/2, so |sum| <= 2**bits (|acc| + n (r + 1/2)) + 1/2,
            which is below 2**bits bound for bound = |acc| + n (r + 1/2) + 1, and `bits` is the
            largest with 2**bits bound <= 2**room; 0 if there is none.

For hardware that only shifts, r is a power of two. Then whichever is coarser is shifted to the
finer scale, and the sum is exact:

    sum = (acc << max(-log2 r, 0)) + (code - zero_point << max(log2 r, 0))
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm import relax

from tvm_quant.ir import constant
from tvm_quant.op import RequantizeMode
from tvm_quant.transform.integer.emitter import (
    FRACTION_BITS,
    MANY_CODES,
    ROOM,
    Emitter,
    for_each_scale,
    half_of,
)
from tvm_quant.transform.integer.value import Accumulator, Array, Codes

R = relax.op

#: The longest shift to the right of a term.
LONGEST = {"int32": 30, "int64": 40}


def add_codes(emitter: Emitter, acc: Accumulator, codes: Codes, sign: int) -> Accumulator:
    """Acc + sign * codes, with as many bits below the point as the type has left."""
    acc = emitter.apply_clamp(acc)
    if codes.reach >= MANY_CODES:
        acc = emitter.widen(acc, np.asarray(np.inf))
    acc = emitter.make_room(acc, _reach(codes, acc))
    acc = emitter.widen(acc, acc.bound + _reach(codes, acc))
    acc = emitter.make_room(acc, _reach(codes, acc))
    shifted = _add_shifted(emitter, acc, codes, sign)
    if shifted is not None:
        return shifted

    bound = acc.bound + _reach(codes, acc)
    ratio = codes.scale / acc.scale
    budget = ROOM[acc.dtype] - int(np.ceil(np.log2(codes.reach + 1)))
    shift = np.floor(np.log2((2.0**budget - 1) / ratio)).clip(0, LONGEST[acc.dtype]).astype("int64")
    factor = np.round(ratio * 2.0**shift).astype("int64") * sign
    free = (ROOM[acc.dtype] - np.frexp(bound)[1]).clip(0, np.minimum(shift, FRACTION_BITS))
    bits = for_each_scale(np.min, free, acc.scale).astype("int64")

    acc = emitter.refine(acc, bits)
    term = _term(codes, factor, shift - bits, acc.dtype)
    return replace(acc, expr=emitter.emit(R.add(acc.expr, term)), bound=bound * 2.0**bits)


def _add_shifted(emitter: Emitter, acc: Accumulator, codes: Codes, sign: int) -> Accumulator | None:
    """The exact sum of scales that are powers of two apart; None where they are not, or too far."""
    mantissa, exponent = np.frexp(codes.scale / acc.scale)
    if emitter.mode is not RequantizeMode.SHIFT or (mantissa != 0.5).any():
        return None
    octaves = exponent.astype("int64") - 1
    finer = for_each_scale(np.max, (-octaves).clip(0), acc.scale).astype("int64")
    left = octaves + finer
    bound = acc.bound * 2.0**finer + codes.reach * 2.0**left
    if (bound > 2.0 ** ROOM[acc.dtype]).any():
        return None
    acc = emitter.refine(acc, finer)
    term = R.astype(codes.expr, acc.dtype)
    if left.any():
        term = R.left_shift(term, constant(left.astype(acc.dtype)))
    operator = R.add if sign == 1 else R.subtract
    return replace(
        acc,
        expr=emitter.emit(operator(acc.expr, emitter.emit(term, "_residual"))),
        offset=-sign * (codes.zero_point << left),
        bound=bound,
    )


def _reach(codes: Codes, acc: Accumulator) -> Array:
    """The most that codes can add, in steps of the accumulator."""
    return np.asarray(codes.reach * (codes.scale / acc.scale + 0.5) + 1)


def _term(codes: Codes, factor: Array, right: Array, dtype: str) -> relax.Expr:
    """Factor * (codes - zero_point), shifted to the right; ties up."""
    term = R.multiply(R.astype(codes.expr, dtype), constant(factor.astype(dtype)))
    added = half_of(right) - codes.zero_point * factor
    if added.any():
        term = R.add(term, constant(added.astype(dtype)))
    return R.right_shift(term, constant(right.astype(dtype))) if right.any() else term
