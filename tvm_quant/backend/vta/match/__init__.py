"""Which variables of a realized function VTA computes, and by which layers.

A new form is one function, and one row in `RULES`.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from tvm_quant.backend.vta.match.match import Match, Values, tensor_of
from tvm_quant.backend.vta.match.move import every_nth, max_pool, padded
from tvm_quant.backend.vta.match.requantized import clipped_by_channel, requantized
from tvm_quant.ir import op_name, producers

#: By the operator whose result is an int8 tensor.
RULES: dict[str, Callable[[relax.Var, Values], Match | None]] = {
    "tvm_quant.requantize": requantized,
    "relax.minimum": clipped_by_channel,
    "relax.nn.max_pool2d": max_pool,
    "relax.strided_slice": every_nth,
    "relax.nn.pad": padded,
}


def matches(func: relax.Function) -> dict[relax.Var, Match]:
    """{variable: its layers} of all variables that a rule takes; they may share operands."""
    values = producers(func)
    found = {}
    for var, value in values.items():
        rule = RULES.get(str(op_name(value)))
        match = rule(var, values) if rule is not None and tensor_of(var) is not None else None
        if match is not None:
            found[var] = match
    return found


__all__ = ["RULES", "Match", "matches"]
