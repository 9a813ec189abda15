"""Walking a Relay graph without recursion: real networks are deeper than Python's stack."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tvm_relay.expr import Call, Expr, Function, If, Let, Op, Tuple, TupleGetItem

#: Type of expression: what it reads, in the order of evaluation.
_CHILDREN: dict[type[Expr], Callable[..., Sequence[Expr]]] = {
    Call: lambda e: (*(() if isinstance(e.op, Op) else (e.op,)), *e.args),
    Tuple: lambda e: e.fields,
    TupleGetItem: lambda e: (e.tuple_value,),
    Let: lambda e: (e.var, e.value, e.body),
    If: lambda e: (e.cond, e.true_branch, e.false_branch),
    Function: lambda e: (*e.params, e.body),
}


def children(expr: Expr) -> Sequence[Expr]:
    """What an expression reads; parameters of a function and the variable of a `Let` come first."""
    read = _CHILDREN.get(type(expr))
    return read(expr) if read else ()


def post_order(expr: Expr) -> Iterator[Expr]:
    """Every expression below and at `expr` once, after all that it reads.

    >>> from tvm_relay.expr import var
    >>> x = var("x")
    >>> list(post_order(x + x))
    [%x, <relay.Call add>]
    """
    seen: set[int] = set()
    stack = [(expr, iter(children(expr)))]
    while stack:
        current, rest = stack[-1]
        below = next((child for child in rest if id(child) not in seen), None)
        if below is not None:
            stack.append((below, iter(children(below))))
            continue
        stack.pop()
        if id(current) not in seen:
            seen.add(id(current))
            yield current
