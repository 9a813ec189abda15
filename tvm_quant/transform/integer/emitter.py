"""Emits integer arithmetic: the conversions between the forms of a value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from tvm import relax

from tvm_quant.ir import constant, tensor_shape
from tvm_quant.op import (
    Convention,
    Formula,
    QuantSpec,
    RequantizeMode,
    Rounding,
    quantize,
    quantize_numpy,
    requantize,
)
from tvm_quant.op.simulated_quantize import FLOAT32_BITS, float32_bounds
from tvm_quant.transform.integer.value import (
    INT32_LIMIT,
    INT64_LIMIT,
    Accumulator,
    Array,
    Codes,
    Float,
    Table,
    Value,
    table_of,
)

R = relax.op

#: Fraction bits that a code gains before a constant or another tensor is added to it.
FRACTION_BITS = 16

#: Bits of a sum beside its sign that more is added to; one more bit is left for what is added.
ROOM = {"int32": 30, "int64": 61}

#: The longest shift of an int64: of a sum below 2**62 it leaves nothing but the sign.
INT64_BITS = 62

#: Wider codes, such as those of biases, have no table.
TABLE_BITS = 16

#: From so many codes on, 32 bits leave too few for the factor that brings them to another scale.
MANY_CODES = 2**11


class Emitter:
    """Emits calls under the name of the variable that is being realized.

    Args:
        builder: block builder inside a function.
        mode: how accumulators are scaled to codes, where quantizers have no convention.
        exact: whether constants are added to the last bit where sums end in float.

    Attributes:
        convention: of the next quantizer behind the call that is being realized.
        behind: the grid of that quantizer, where it has a convention and reads the call itself.
    """

    def __init__(self, builder: relax.BlockBuilder, mode: RequantizeMode, exact: bool = False):
        self.builder = builder
        self.mode = mode
        self.exact = exact
        self.convention = Convention.BACKEND
        self.behind: Codes | None = None
        self.name = "value"
        self.emitted: list[str] = []
        self._floats: dict[relax.Expr, relax.Expr] = {}

    def emit(self, expr: relax.Expr, suffix: str = "") -> relax.Var:
        """Bind `expr` to a variable named after the current one."""
        var = self.builder.emit(expr, name_hint=f"{self.name}{suffix}")
        self.emitted.append(str(var.name))
        return var

    # To float ------------------------------------------------------------------

    def to_float(self, value: Value) -> relax.Expr:
        """The real values, float32."""
        if isinstance(value, Float):
            return value.expr
        key = value.codes.expr if isinstance(value, Table) else value.expr
        if isinstance(value, Codes):
            if key not in self._floats:
                self._floats[key] = self._dequantize(value)
            return self._floats[key]
        return self.look_up(value, value.values) if isinstance(value, Table) else self._scale(value)

    def _dequantize(self, codes: Codes) -> relax.Expr:
        data = R.astype(codes.expr, "float32")
        if codes.zero_point.any():
            data = R.subtract(data, constant(codes.zero_point.astype("float32")))
        return self.emit(R.multiply(data, constant(codes.scale.astype("float32"))), "_float")

    def _scale(self, acc: Accumulator) -> relax.Expr:
        acc = self.add_offset(acc)
        data = R.multiply(R.astype(acc.expr, "float32"), constant(acc.scale.astype("float32")))
        if self.exact and acc.residue.any():
            data = R.add(data, constant(acc.residue.astype("float32")))
        if np.isfinite(acc.low).any():
            data = R.maximum(data, constant(acc.low.astype("float32")))
        if np.isfinite(acc.high).any():
            data = R.minimum(data, constant(acc.high.astype("float32")))
        return self.emit(data, "_float")

    def look_up(self, table: Table, values: Array) -> relax.Expr:
        """The element of `values` for each code of the table's tensor."""
        added = _only_added(values, table.codes.spec)
        if added is not None:
            wide = R.add(R.astype(table.codes.expr, "int32"), constant(np.int32(added)))
            return self.emit(R.astype(wide, str(values.dtype)), "_moved")
        index = R.astype(table.codes.expr, "int32")
        if table.codes.spec.qmin:
            index = R.subtract(index, constant(np.int32(table.codes.spec.qmin)))
        return self.emit(R.take(constant(values), index, axis=0, mode="clip"), "_table")

    # To codes ------------------------------------------------------------------

    def quantize(self, data: relax.Expr, wanted: Codes) -> relax.Expr:
        """The codes of float data."""
        spec = wanted.spec
        if spec.rounding is not Rounding.HALF_EVEN or spec.formula is not Formula.DIVIDE:
            return quantize(data, wanted.scale, wanted.zero_point, spec)
        steps = R.round(R.divide(data, constant(wanted.scale.astype("float32"))))
        if wanted.zero_point.any():
            steps = R.add(steps, constant(wanted.zero_point.astype("float32")))
        return R.astype(R.clip(steps, *float32_bounds(spec)), spec.dtype)

    def scale_to(
        self, acc: Accumulator, wanted: Codes, multiplier: Array, mode: RequantizeMode
    ) -> relax.Expr:
        """One requantize, with the pending clamp in its bounds; nothing else is pending."""
        spec = wanted.spec
        low, high = (
            quantize_numpy(bound, wanted.scale, wanted.zero_point, spec)
            for bound in (acc.low, acc.high)
        )
        codes = requantize(
            acc.expr,
            multiplier,
            wanted.zero_point,
            dtype=spec.dtype,
            qmin=int(low.min()),
            qmax=int(high.max()),
            mode=mode,
        )
        if low.min() != low.max():
            codes = R.maximum(self.emit(codes, "_scaled"), constant(low))
        if high.min() != high.max():
            codes = R.minimum(self.emit(codes, "_clamped"), constant(high))
        return codes

    # Accumulators --------------------------------------------------------------

    def to_accumulator(self, value: Value, fraction_bits: int = 0) -> Accumulator:
        """Codes as wide integers with `fraction_bits` more bits below the point."""
        if isinstance(value, Accumulator):
            return value
        if isinstance(value, Table):
            assert value.clamp is not None, "a table that is no clamp has no accumulator form"
            return self.to_accumulator(value.codes, fraction_bits).clamp(*value.clamp)
        assert isinstance(value, Codes)
        factor = 1 << fraction_bits
        bound = value.reach * factor
        dtype = wide_dtype(bound)
        expr = R.astype(value.expr, dtype)
        if factor != 1:
            expr = R.multiply(expr, constant(np.asarray(factor, dtype)))
        return Accumulator(
            expr=self.emit(expr, "_wide"),
            scale=value.scale / factor,
            bound=np.asarray(bound),
            offset=-value.zero_point * factor,
        )

    def centred(self, codes: Codes, dtype: str) -> relax.Expr:
        """Code - zero_point in a wider type."""
        expr = R.astype(codes.expr, dtype) if str(codes.expr.ty.dtype) != dtype else codes.expr
        if codes.zero_point.any():
            expr = R.subtract(expr, constant(codes.zero_point.astype(dtype)))
        return self.emit(expr, "_centred")

    def add_offset(self, acc: Accumulator) -> Accumulator:
        """Apply the pending constant."""
        if not acc.offset.any():
            return acc
        acc = self.widen(acc, acc.bound)
        summed = R.add(acc.expr, constant(acc.offset.astype(acc.dtype)))
        return replace(acc, expr=self.emit(summed, "_sum"), offset=np.zeros((), "int64"))

    def apply_clamp(self, acc: Accumulator) -> Accumulator:
        """Apply the pending constant and the pending clamp."""
        acc = self.add_offset(acc)
        low, high = np.round(acc.low / acc.scale), np.round(acc.high / acc.scale)
        acc = self._limit(acc, low, low > -acc.bound, R.maximum)
        acc = self._limit(acc, high, high < acc.bound, R.minimum)
        return replace(acc, low=np.full((), -np.inf), high=np.full((), np.inf))

    def _limit(
        self,
        acc: Accumulator,
        limit: Array,
        effective: Array,
        operator: Callable[[relax.Expr, relax.Expr], relax.Expr],
    ) -> Accumulator:
        """Clamp to whole steps where that is `effective`; elsewhere the values cannot get there."""
        if not effective.any():
            return acc
        bound = np.maximum(acc.bound, np.where(effective, np.abs(limit), 0))
        acc = self.widen(acc, bound)
        room = INT32_LIMIT if acc.dtype == "int32" else INT64_LIMIT
        steps = np.clip(limit, -room, room).astype(acc.dtype)
        return replace(
            acc, expr=self.emit(operator(acc.expr, constant(steps)), "_clamped"), bound=bound
        )

    def widen(self, acc: Accumulator, bound: Array) -> Accumulator:
        """Go to 64 bits if 32 cannot hold `bound`."""
        dtype = wide_dtype(float(np.max(bound)))
        if dtype == acc.dtype or acc.dtype == "int64":
            return acc
        return replace(acc, expr=self.emit(R.astype(acc.expr, dtype), "_wide"))

    def add_constant(self, acc: Accumulator, real: npt.ArrayLike) -> Accumulator:
        """Acc + real, rounded to the accumulator's scale; never clipped."""
        if acc.is_clamped:
            acc = self.apply_clamp(acc)
        real = np.asarray(real, "float64")
        acc = self.make_room(acc, np.abs(real) / acc.scale + 0.5)
        lost = np.abs(real) / acc.scale > INT64_LIMIT / 2
        if lost.any():
            acc = self._silence(acc, lost, np.abs(real) / 2.0**FLOAT32_BITS)
        steps = np.round(real / acc.scale).astype("int64")
        return replace(
            acc,
            offset=acc.offset + steps,
            bound=acc.bound + np.abs(steps),
            residue=acc.residue + (real - steps * acc.scale),
        )

    def absorb(self, acc: Accumulator) -> Accumulator:
        """The same in finer steps, with the residue in them as far as the type has room."""
        if (np.abs(acc.residue) <= acc.scale / 2.0**FRACTION_BITS).all():
            return acc
        acc = self.refine(self.add_offset(acc), free_bits(acc))
        steps = np.round(acc.residue / acc.scale).astype("int64")
        return replace(
            acc,
            offset=steps,
            bound=acc.bound + np.abs(steps),
            residue=acc.residue - steps * acc.scale,
        )

    def _silence(self, acc: Accumulator, lost: Array, scale: Array) -> Accumulator:
        """Make `lost` sums 0 at another scale: no float32 tells them beside what they join.

        What is pending may be as large as that, so it stays.
        """
        heard = constant(np.where(lost, 0, 1).astype(acc.dtype))
        pending = np.round(acc.offset * acc.scale / np.where(lost, scale, 1.0)).astype("int64")
        return replace(
            acc,
            expr=self.emit(R.multiply(acc.expr, heard), "_heard"),
            scale=np.where(lost, scale, acc.scale),
            offset=np.where(lost, pending, acc.offset),
        )

    def refine(self, acc: Accumulator, bits: Array) -> Accumulator:
        """The same in steps of 2**-bits of the old ones; to negative `bits` rounded, ties up.

        Args:
            acc: with nothing pending. Its type has room for the finer steps, or for half a coarser
                step beside the sum.
            bits: int64, one for each scale of `acc`.
        """
        expr, dtype = acc.expr, acc.dtype
        left, right = bits.clip(0), (-bits).clip(0, INT64_BITS)
        if left.any():
            expr = self.emit(R.left_shift(expr, constant(left.astype(dtype))), "_fine")
        if right.any():
            expr = self.emit(R.add(expr, constant(half_of(right).astype(dtype))), "_half")
            expr = self.emit(R.right_shift(expr, constant(right.astype(dtype))), "_coarse")
        return replace(
            acc,
            expr=expr,
            scale=acc.scale / 2.0**bits,
            bound=acc.bound * 2.0**bits + (right > 0),
            fraction=acc.fraction + bits,
        )

    def make_room(self, acc: Accumulator, more: Array) -> Accumulator:
        """Give up bits where the type cannot hold `more` steps beside the sum.

        32 bits give up what a sum gained below the point. 64 bits give up any: what then is lost
        is too small for a float32 that also holds `more`.
        """
        room = ROOM[acc.dtype]
        bound = for_each_scale(np.max, acc.bound, acc.scale)
        excess = np.frexp(for_each_scale(np.max, acc.bound + more, acc.scale))[1] - room
        given_up = excess.astype("int64").clip(0)
        if acc.dtype == "int32":
            given_up = np.minimum(given_up, np.where(bound <= 2.0**room, acc.fraction, 0))
        return self.refine(self.add_offset(acc), -given_up) if given_up.any() else acc

    def _times(self, data: relax.Expr, factor: Array) -> relax.Expr:
        """Data * factor; a shift, where that is how this hardware multiplies."""
        mantissa, exponent = np.frexp(factor)
        if self.mode is not RequantizeMode.SHIFT or (mantissa != 0.5).any():
            return R.multiply(data, constant(factor))
        left = (exponent - 1).astype(factor.dtype)
        return R.left_shift(data, constant(left)) if left.any() else data

    def common_scale(self, left: Codes, right: Codes, sign: int) -> Accumulator:
        """Left + sign * right on a fixed-point scale that both reach by an integer factor."""
        largest = max(left.largest, right.largest)
        dtype, bits = "int32", 29 - int(np.ceil(np.log2(largest + 1)))
        if largest >= MANY_CODES:
            dtype, bits = "int64", 30
        ratio = left.scale / right.scale
        if self.mode is RequantizeMode.SHIFT and (np.frexp(ratio)[0] == 0.5).all():
            bits = min(bits, int(np.abs(np.log2(ratio)).max()))
        scale = np.maximum(left.scale, right.scale) / 2.0**bits
        factors = [np.round(codes.scale / scale).astype("int64") for codes in (left, right)]
        terms = [
            self._times(self.centred(codes, dtype), factor.astype(dtype))
            for codes, factor in zip((left, right), (factors[0], factors[1] * sign), strict=True)
        ]
        bound = left.largest * factors[0] + right.largest * factors[1]
        return Accumulator(
            expr=self.emit(R.add(*terms)), scale=scale, bound=np.asarray(bound, "float64")
        )


def for_each_scale(function: Callable[..., Array], values: Array, scale: Array) -> Array:
    """Reduce `values` of an accumulator's elements to one for each of its scales.

    >>> for_each_scale(np.max, np.array([[1, 2], [3, 4]]), np.ones((1, 2))).tolist()
    [[3, 4]]
    """
    if scale.size == 1:
        return np.asarray(function(values))
    values = np.broadcast_to(values, np.broadcast_shapes(values.shape, scale.shape))
    shape = (1,) * (values.ndim - scale.ndim) + scale.shape
    shared = tuple(axis for axis, size in enumerate(shape) if size == 1)
    return np.asarray(function(values, axis=shared, keepdims=True))


def free_bits(acc: Accumulator) -> Array:
    """Bits below the point that the type has room for, one number for each scale."""
    free = (ROOM[acc.dtype] - np.frexp(acc.bound + 1)[1]).clip(0, FRACTION_BITS)
    return for_each_scale(np.min, free, acc.scale).astype("int64")


def half_of(shift: Array) -> Array:
    """What is added before a shift to the right, for rounding with ties up.

    >>> half_of(np.array([0, 1, 4])).tolist()
    [0, 1, 8]
    """
    return np.asarray((np.int64(1) << shift) >> 1)


def wide_dtype(bound: float) -> str:
    """The accumulator type that holds +-bound."""
    return "int32" if bound <= INT32_LIMIT else "int64"


def _only_added(values: Array, spec: QuantSpec) -> int | None:
    """What a table adds to every code, such as 128 from signed to unsigned ones."""
    if values.dtype.kind not in "iu" or values.size != spec.levels:
        return None
    added = values.astype("int64") - np.arange(spec.qmin, spec.qmax + 1)
    return int(added[0]) if (added == added[0]).all() else None


def tabulated(value: Value) -> Table | None:
    """`value` as a table of codes with one scale, or None."""
    if isinstance(value, Table):
        return value
    if isinstance(value, Codes) and value.scale.size == 1 and value.spec.bits <= TABLE_BITS:
        return table_of(value)
    return None


def rank(expr: relax.Expr) -> int:
    """Rank of a tensor."""
    return len(tensor_shape(expr) or ())
