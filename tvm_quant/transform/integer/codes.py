"""From any value to the codes of a grid: what a quantizer becomes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm import relax

from tvm_quant.ir import constant
from tvm_quant.op import Convention, QuantSpec, RequantizeMode, Rounding, quantize_numpy
from tvm_quant.op.spec import MAX_BITS
from tvm_quant.transform.integer.convention import CONVENTIONS
from tvm_quant.transform.integer.emitter import Emitter, tabulated
from tvm_quant.transform.integer.exact import exact_codes
from tvm_quant.transform.integer.value import (
    INT32_LIMIT,
    Accumulator,
    Array,
    Codes,
    Float,
    Table,
    Value,
    table_of,
)

#: Conventions that say the same of codes as the float32 formula of a quantizer does.
OF_FLOAT32 = (
    Convention.NEAREST,
    Convention.EXACT,
    Convention.FLOAT32,
    Convention.ONNXRUNTIME,
    Convention.XNNPACK,
)


def to_codes(
    emitter: Emitter,
    value: Value,
    scale: Array,
    zero_point: Array,
    spec: QuantSpec,
    convention: Convention = Convention.BACKEND,
) -> Codes:
    """Quantize or requantize to a grid."""
    wanted = Codes(
        expr=constant(0),
        scale=scale.astype("float64"),
        zero_point=zero_point.astype("int64"),
        spec=spec,
    )
    if isinstance(value, Codes) and value.spec == spec and value.same_grid(wanted):
        return value
    codes = _codes_expr(emitter, value, wanted, convention)
    return replace(wanted, expr=emitter.emit(codes, "_q"))


def _codes_expr(
    emitter: Emitter, value: Value, wanted: Codes, convention: Convention
) -> relax.Expr:
    if isinstance(value, Float):
        return emitter.quantize(value.expr, wanted)
    row = CONVENTIONS.get(convention)
    if row is not None and row.recode is not None and _share_type(value, wanted):
        assert isinstance(value, Codes), "_share_type() asks"
        return emitter.look_up(table_of(value), row.recode(value, wanted))
    table = _table_for(value, wanted, convention)
    if table is not None:
        codes = quantize_numpy(table.values, wanted.scale, wanted.zero_point, wanted.spec)
        return emitter.look_up(table, codes)
    acc = emitter.to_accumulator(value)
    if row is not None:
        acc = emitter.add_offset(acc)
        return emitter.scale_to(acc, wanted, row.multiplier(acc.scale, wanted.scale), row.mode)
    if is_plain_sum(acc, wanted):
        return emitter.add_offset(acc).expr
    if convention is Convention.EXACT or wanted.spec.rounding is not Rounding.HALF_EVEN:
        return exact_codes(emitter, acc, wanted)
    if convention is Convention.NEAREST:
        acc = emitter.absorb(acc)
    acc = emitter.add_offset(acc)
    multiplier = acc.scale / wanted.scale
    return emitter.scale_to(acc, wanted, multiplier, _mode(emitter.mode, multiplier))


def is_plain_sum(acc: Accumulator, wanted: Codes) -> bool:
    """Whether a network wants the sums as they are, in 32 bits: no float32 tells them apart."""
    return (
        wanted.spec.bits == MAX_BITS
        and wanted.spec.signed
        and acc.dtype == wanted.spec.dtype
        and bool(np.array_equal(acc.scale, wanted.scale))
        and not (acc.is_clamped or acc.residue.any() or wanted.zero_point.any())
        and float(np.max(acc.bound)) <= INT32_LIMIT
    )


def _table_for(value: Value, wanted: Codes, convention: Convention) -> Table | None:
    """The table that gives the codes; None where arithmetic does, or there is no table."""
    if wanted.scale.size != 1:
        return None
    if convention in OF_FLOAT32:
        return tabulated(value)
    return value if isinstance(value, Table) and value.clamp is None else None


def _share_type(value: Value, wanted: Codes) -> bool:
    """Whether these are the codes of one tensor, of 8 bits, to be brought to another grid."""
    if not isinstance(value, Codes) or value.spec.dtype != wanted.spec.dtype:
        return False
    return wanted.spec.bits == 8 and value.scale.size == wanted.scale.size == 1


def _mode(mode: RequantizeMode, multiplier: Array) -> RequantizeMode:
    """Shifts only exist for powers of two; an average over 3 x 3 has none."""
    if mode is RequantizeMode.SHIFT and (np.frexp(multiplier)[0] != 0.5).any():
        return RequantizeMode.FIXED_POINT
    return mode
