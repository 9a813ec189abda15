"""One clamp: `clip` with scalar bounds, `nn.relu` where it is max(x, 0)."""

from __future__ import annotations

import math

from tvm import relax

from tvm_quant.ir import constant_value, op_name
from tvm_quant.transform.canonicalize.rewriter import Rule, Scope


def merge_clamps(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """Maximum and minimum with a number, relu and clip, and any chain of them."""
    clamp = _clamp(call)
    if clamp is None or not str(call.ty.dtype).startswith("float"):
        return None
    data, low, high = clamp
    inner = _clamp(scope.value(data)) if scope.used_once(data) else None
    if inner is not None:
        data, *bounds = inner
        low, high = (min(max(bound, low), high) for bound in bounds)
    result = _canonical(data, low, high)
    return None if inner is None and op_name(result) == op_name(call) else result


def _canonical(data: relax.Expr, low: float, high: float) -> relax.Expr:
    if (low, high) == (-math.inf, math.inf):
        return data
    if (low, high) == (0.0, math.inf):
        return relax.op.nn.relu(data)
    return relax.op.clip(data, low, high)


def _clamp(expr: relax.Expr) -> tuple[relax.Expr, float, float] | None:
    """(operand, low, high) of a clamp to numbers."""
    name = op_name(expr)
    if name == "relax.nn.relu":
        return expr.args[0], 0.0, math.inf
    if name == "relax.clip":
        return expr.args[0], float(expr.args[1].value), float(expr.args[2].value)
    if name not in ("relax.maximum", "relax.minimum"):
        return None
    left, right = expr.args
    for data, other in ((left, right), (right, left)):
        bound = _number(other, data)
        if bound is not None:
            return (data, bound, math.inf) if "maximum" in name else (data, -math.inf, bound)
    return None


def _number(expr: relax.Expr, data: relax.Expr) -> float | None:
    value = constant_value(expr)
    if value is None or value.size != 1 or value.ndim > data.ty.ndim or math.isnan(value.item()):
        return None
    return float(value.item())


RULES = (Rule(operators=("clip", "maximum", "minimum", "nn.relu"), rewrite=merge_clamps),)
