"""Free variables of a Relay expression."""

from __future__ import annotations

from tvm_relay.expr import Expr, Function, Let, Var
from tvm_relay.walk import post_order


def free_vars(expr: Expr) -> list[Var]:
    """Variables that an expression reads and nothing in it binds, in the order of evaluation.

    >>> from tvm_relay.expr import var
    >>> x, y = var("x"), var("y")
    >>> free_vars(Function((x,), x + y))
    [%y]
    """
    found = list(post_order(expr))
    bound = {id(param) for e in found if isinstance(e, Function) for param in e.params}
    bound |= {id(e.var) for e in found if isinstance(e, Let)}
    return [e for e in found if isinstance(e, Var) and id(e) not in bound]
