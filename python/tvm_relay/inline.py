"""Inlining a Relax expression where a Relay graph reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import IRModule, relax

from tvm_quant.errors import FrontendError


def inline(
    builder: relax.BlockBuilder, value: relax.Expr, known: Mapping[Any, relax.Expr]
) -> relax.Expr:
    """Emit the bindings of `value` with fresh variables; free variables are those of `known`.

    Args:
        builder: with an open block.
        value: such as the body of a Relax function.
        known: what stands for each free variable.

    Raises:
        FrontendError: a free variable that is not known.
    """
    free = [var for var in relax.analysis.free_vars(value) if _is_value(var)]
    missing = [str(var.name) for var in free if var not in known]
    if missing:
        raise FrontendError(f"A Relax value reads {missing}, which the function does not bind.")
    function = relax.utils.copy_with_new_vars(_function(free, value))
    arguments = dict(zip(function.params, (known[var] for var in free), strict=True))
    body = function.bind_params(arguments).body
    for block in body.blocks:
        for binding in block.bindings:
            builder.emit_normalized(binding)
    return body.body


def _is_value(var: Any) -> bool:
    """Whether it stands for a value, not for a dimension."""
    return isinstance(var.ty, relax.TensorType | relax.TupleType)


def _function(params: list[relax.Var], value: relax.Expr) -> relax.Function:
    """A function of the value, without dataflow blocks."""
    body = value if isinstance(value, relax.SeqExpr) else relax.SeqExpr([], value)
    function = relax.Function(params, body, None, is_pure=True)
    module = relax.transform.Normalize()(IRModule({"main": function}))
    return relax.transform.ToNonDataflow()(module)["main"]
