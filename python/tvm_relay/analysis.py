"""`relay.analysis`: what a function reads and calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from tvm_relay import free_vars as _free
from tvm_relay.expr import Expr, Function, Let, Var
from tvm_relay.walk import post_order


def free_vars(expr: Any) -> list[Any]:
    """Variables that nothing in a Relay or Relax expression binds."""
    if isinstance(expr, relax.Expr):
        return list(relax.analysis.free_vars(expr))
    return _free.free_vars(expr)


def all_vars(expr: Expr) -> list[Var]:
    """Every variable of a Relay expression, in the order of evaluation."""
    return [e for e in post_order(expr) if isinstance(e, Var)]


def bound_vars(expr: Expr) -> list[Var]:
    """Parameters of functions and variables of `Let`."""
    bound = [p for e in post_order(expr) if isinstance(e, Function) for p in e.params]
    return bound + [e.var for e in post_order(expr) if isinstance(e, Let)]


def post_order_visit(expr: Any, visit: Callable[[Any], object]) -> None:
    """Call `visit` with each expression after all that it reads; Relax functions are walked too."""
    if isinstance(expr, relax.Expr):
        relax.analysis.post_order_visit(expr, visit)
        return
    for found in post_order(expr):
        visit(found)
