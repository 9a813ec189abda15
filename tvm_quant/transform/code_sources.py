"""Where the codes of a tensor were made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import relax

from tvm_quant.ir.bindings import flat_operands
from tvm_quant.op import Role, is_simulated, role_of


def quantizers_of(operand: relax.Expr, values: Mapping[relax.Var, Any]) -> list[relax.Call]:
    """The quantizers whose codes `operand` holds: its own, or those before calls that move codes.

    Args:
        operand: a tensor.
        values: value of each variable.

    Returns:
        Calls of `simulated_quantize`; several with one grid before a concat, none for a tensor
        that holds no codes.
    """
    value = values.get(operand) if isinstance(operand, relax.Var) else operand
    if is_simulated(value):
        return [value]
    if value is None or role_of(value) not in (Role.MOVE, Role.JOIN):
        return []
    found = [quantizers_of(field, values) for field in flat_operands(value) if _is_tensor(field)]
    return [call for calls in found for call in calls] if all(found) else []


def _is_tensor(expr: relax.Expr) -> bool:
    return isinstance(expr.ty, relax.TensorType)
