"""What is known of a range without data: relu is not negative, a sigmoid is below 1."""

from __future__ import annotations

import math

from tvm import relax

from tvm_quant.ir import bindings, op_name
from tvm_quant.op.table import Role, role_of

EVERYTHING = (-math.inf, math.inf)

# Operator: range of its results, whatever its operand.
RESULTS = {
    "relax.nn.relu": (0.0, math.inf),
    "relax.nn.relu6": (0.0, 6.0),
    "relax.sigmoid": (0.0, 1.0),
    "relax.hardsigmoid": (0.0, 1.0),
    "relax.nn.softmax": (0.0, 1.0),
    "relax.tanh": (-1.0, 1.0),
    "relax.erf": (-1.0, 1.0),
    "relax.exp": (0.0, math.inf),
    "relax.abs": (0.0, math.inf),
    "relax.square": (0.0, math.inf),
    "relax.sqrt": (0.0, math.inf),
}


def known_range(func: relax.Function, var: relax.Expr) -> tuple[float, float]:
    """(low, high) that `var` cannot leave, seen through calls that only move values.

    Zero may join the values on the way (padding), so it belongs to the range.
    """
    values = {binding.var: binding.value for binding in bindings(func)}
    value = values.get(var)
    while value is not None and role_of(value) is Role.MOVE:
        value = values.get(value.args[0])
    if value is None:
        return EVERYTHING
    if op_name(value) == "relax.clip":
        low, high = (float(bound.value) for bound in value.args[1:3])
        return min(low, 0.0), max(high, 0.0)
    return RESULTS.get(op_name(value) or "", EVERYTHING)
