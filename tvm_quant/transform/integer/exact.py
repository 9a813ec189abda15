"""Codes of a sum by real arithmetic, for every sum that can occur.

A requantize multiplies by a rounded number, and a constant that was added is rounded to whole steps
of the sum. Both move a code where the real value lies next to a rounding boundary. What sums can
occur is known, [-bound, bound] for each channel, and the code is a monotone function of the sum: it
is given by the smallest sum of each code. So an arithmetic is proven by two sums for each code, the
smallest one that has it and the one below; where no arithmetic passes, the smallest sums themselves
become thresholds.

Real values are computed in float64. Scales and biases are float32, so that powers of two, whose
values do meet boundaries, are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from tvm import relax

from tvm_quant.ir import constant
from tvm_quant.op import (
    RequantizeMode,
    quantize_numpy,
    requantize_numpy,
    rounded_numpy,
    threshold,
)
from tvm_quant.transform.channel_vector import with_last_axis
from tvm_quant.transform.integer.emitter import INT64_BITS, Emitter, free_bits, rank
from tvm_quant.transform.integer.value import Accumulator, Array, Codes

#: Grids with more codes are quantized in float32, as the models that have them were.
MOST_LEVELS = 1 << 12

MODES = (RequantizeMode.FLOAT, RequantizeMode.HALF_UP)


def exact_codes(emitter: Emitter, acc: Accumulator, wanted: Codes) -> relax.Expr:
    """The codes of `acc` on the grid of `wanted`."""
    if wanted.spec.levels > MOST_LEVELS:
        return emitter.quantize(emitter.to_float(acc), wanted)
    acc = emitter.add_offset(acc)
    smallest = smallest_sums(acc, wanted)
    for candidate in _candidates(acc, wanted):
        if _is_proven(candidate.codes, smallest, acc, wanted):
            return candidate.emit(emitter)
    return _compare(emitter, acc, smallest, wanted)


def smallest_sums(acc: Accumulator, wanted: Codes) -> Array:
    """For each code but the lowest, the smallest sum that has at least it, along a last axis.

    Shape: the broadcast one of the arrays of `acc` and `wanted`, and the number of codes less one.
    Where no sum gets there, it is one more than the largest.
    """
    acc, wanted = _along_codes(acc, wanted)
    spec = wanted.spec
    codes = np.arange(spec.qmin + 1, spec.qmax + 1)
    reach = _reach(acc)
    shape = np.broadcast_shapes(
        *(a.shape for a in (acc.scale, acc.residue, acc.low, acc.high, reach)),
        *(wanted.scale.shape, codes.shape),
    )
    low = np.broadcast_to(-reach, shape).copy()
    high = np.broadcast_to(reach + 1, shape).copy()
    while (low < high).any():
        middle = (low + high) >> 1
        reached = _real_codes(middle, acc, wanted) >= codes
        high = np.where(reached, middle, high)
        low = np.where(reached, low, np.minimum(middle + 1, high))
    return low


def _along_codes(acc: Accumulator, wanted: Codes) -> tuple[Accumulator, Codes]:
    """Arrays that broadcast against one more axis, that of the codes."""
    fields = ("scale", "bound", "low", "high", "residue")
    scale, zero_point = with_last_axis(wanted.scale), with_last_axis(wanted.zero_point)
    return (
        replace(acc, **{name: with_last_axis(np.asarray(getattr(acc, name))) for name in fields}),
        replace(wanted, scale=scale, zero_point=zero_point),
    )


def _reach(acc: Accumulator) -> Array:
    """The largest sum."""
    return np.ceil(np.minimum(acc.bound, 2.0**INT64_BITS / 2)).astype("int64")


def _real_codes(sums: Array, acc: Accumulator, wanted: Codes) -> Array:
    real = np.clip(acc.scale * sums + acc.residue, acc.low, acc.high)
    spec = wanted.spec
    codes = rounded_numpy(real / wanted.scale, wanted.zero_point, spec)
    return np.clip(codes, spec.qmin, spec.qmax)


def _is_proven(
    codes: Callable[[Array], Array], smallest: Array, acc: Accumulator, wanted: Codes
) -> bool:
    """Whether `codes` gives each code to the smallest sum that has it, and not to the one below."""
    reach = with_last_axis(_reach(acc))
    levels = np.arange(wanted.spec.qmin + 1, wanted.spec.qmax + 1)
    occurs = smallest <= reach
    has_below = smallest > -reach
    reached = codes(np.minimum(smallest, reach)) >= levels
    missed = codes(np.maximum(smallest - 1, -reach)) < levels
    return bool((reached | ~occurs).all() and (missed | ~has_below).all())


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    """A requantize of the sum with `bits` more bits below the point."""

    acc: Accumulator
    wanted: Codes
    mode: RequantizeMode
    bits: Array

    @property
    def added(self) -> Array:
        """What the finer steps still hold of the constants."""
        return np.round(self.acc.residue / self.acc.scale * 2.0**self.bits).astype("int64")

    @property
    def multiplier(self) -> Array:
        return np.asarray(self.acc.scale / 2.0**self.bits / self.wanted.scale)

    def codes(self, sums: Array) -> Array:
        """By NumPy; `sums` has the codes along its last axis."""
        spec = self.wanted.spec
        scaled = requantize_numpy(
            (sums << with_last_axis(self.bits)) + with_last_axis(self.added),
            with_last_axis(self.multiplier),
            with_last_axis(self.wanted.zero_point),
            dtype=spec.dtype,
            qmin=spec.qmin,
            qmax=spec.qmax,
            mode=self.mode,
        )
        low, high = (
            with_last_axis(quantize_numpy(bound, self.wanted.scale, self.wanted.zero_point, spec))
            for bound in (self.acc.low, self.acc.high)
        )
        return np.clip(scaled, low, high)

    def emit(self, emitter: Emitter) -> relax.Expr:
        """The same as a call."""
        fine = emitter.refine(self.acc, self.bits) if self.bits.any() else self.acc
        if self.added.any():
            summed = relax.op.add(fine.expr, constant(self.added.astype(fine.dtype)))
            fine = replace(fine, expr=emitter.emit(summed, "_sum"))
        return emitter.scale_to(fine, self.wanted, self.multiplier, self.mode)


def _candidates(acc: Accumulator, wanted: Codes) -> Iterator[_Candidate]:
    coarse = np.zeros((), "int64")
    fine = free_bits(acc)
    for bits in (coarse, fine) if acc.residue.any() and fine.any() else (coarse,):
        for mode in MODES:
            yield _Candidate(acc=acc, wanted=wanted, mode=mode, bits=bits)


def _compare(emitter: Emitter, acc: Accumulator, smallest: Array, wanted: Codes) -> relax.Expr:
    limit = np.iinfo(acc.dtype).max
    steps = np.clip(smallest, -limit, limit)
    if steps.ndim > 1:  # one row for each of the result's dimensions
        missing = rank(acc.expr) + 1 - steps.ndim
        steps = steps.reshape((1,) * missing + steps.shape)
    return threshold(acc.expr, steps, low=wanted.spec.qmin, dtype=wanted.spec.dtype)
