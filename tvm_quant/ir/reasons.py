"""Why calls stay in float: an attribute of the function, in words for the user."""

from __future__ import annotations

from collections.abc import Mapping

from tvm import relax

REASONS = "tvm_quant.float_reasons"


def float_reasons(func: relax.Function) -> dict[str, str]:
    """Why each call that stays in float does, by variable name."""
    reasons = func.attrs.get(REASONS) if func.attrs else None
    return {str(var): str(reason) for var, reason in (reasons or {}).items()}


def with_reasons(func: relax.Function, reasons: Mapping[str, str]) -> relax.Function:
    """`func` with the reasons, {variable name: reason}."""
    return func.with_attr(REASONS, dict(reasons))
