"""Thresholds of sums and codes: what a comparison of real numbers becomes.

    real >= T    <=>    sum >= ceil((T - residue) / scale)

Beyond the clamp that is pending on a sum, all of them reach a threshold or none does.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm import relax

from tvm_quant.ir import constant_value
from tvm_quant.op import threshold, threshold_numpy
from tvm_quant.transform.channel_vector import with_last_axis
from tvm_quant.transform.integer.emitter import Emitter, tabulated
from tvm_quant.transform.integer.value import Accumulator, Array, Codes, Float, Value


def realize_threshold(emitter: Emitter, call: relax.Call, value: Value) -> Float | None:
    """The integers that `tvm_quant.threshold` counts, from those of its operand."""
    thresholds = constant_value(call.args[1])
    if isinstance(value, Float) or thresholds is None:
        return None
    low, dtype = int(call.attrs["low"]), str(call.attrs["dtype"])
    table = tabulated(value)
    if table is not None and thresholds.ndim == 1:
        counts = threshold_numpy(table.values, thresholds, low=low)
        return Float(expr=emitter.look_up(table, counts.astype(dtype)))
    if not isinstance(value, Accumulator | Codes):
        return None
    acc = emitter.add_offset(emitter.to_accumulator(value))
    steps = _in_steps(acc, thresholds.astype("float64"))
    return Float(expr=emitter.emit(threshold(acc.expr, steps, low=low, dtype=dtype)))


def _in_steps(acc: Accumulator, thresholds: Array) -> Array:
    """The smallest sum that reaches each threshold; beyond the clamp all do, or none does."""
    fields = ("scale", "residue", "low", "high")
    wide = replace(acc, **{name: with_last_axis(getattr(acc, name)) for name in fields})
    limit = float(np.iinfo(acc.dtype).max)
    with np.errstate(invalid="ignore"):
        steps = np.ceil((thresholds - wide.residue) / wide.scale)
    steps = np.where(thresholds <= wide.low, -limit, steps)
    steps = np.where(thresholds > wide.high, limit, steps)
    largest = limit if acc.dtype == "int32" else 2.0**62
    return np.clip(steps, -largest, largest).astype(acc.dtype)
