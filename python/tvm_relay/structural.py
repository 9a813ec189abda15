"""Whether two Relay programs are the same, names of variables aside.

The same means: same operators, attributes, types and constants, and the same sharing: a value that
several others read in one program is one value in the other, too. Constants and names of functions
may be shared differently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tvm_relay import expr as ir
from tvm_relay.attributes import all_attributes
from tvm_relay.module import Module
from tvm_relay.walk import children


def structural_equal(left: Module | ir.Expr, right: Module | ir.Expr) -> bool:
    """Whether two modules, or two expressions, are the same.

    >>> x, y = ir.var("x", shape=(2,)), ir.var("y", shape=(2,))
    >>> structural_equal(ir.Function((x,), x + x), ir.Function((y,), y + y))
    True
    """
    return difference(left, right) is None


def assert_structural_equal(left: Module | ir.Expr, right: Module | ir.Expr) -> None:
    """Refuse programs that differ.

    Raises:
        ValueError: with the first difference.
    """
    found = difference(left, right)
    if found is not None:
        raise ValueError(f"The programs differ: {found}.")


def difference(left: Module | ir.Expr, right: Module | ir.Expr) -> str | None:
    """The first difference of two programs in words; None where they are the same."""
    if isinstance(left, Module) and isinstance(right, Module):
        return _module_difference(left, right)
    if isinstance(left, Module) or isinstance(right, Module):
        return "one is a module, the other an expression"
    return _expr_difference(left, right)


def _module_difference(left: Module, right: Module) -> str | None:
    names = [sorted(key.name_hint for key in module.functions) for module in (left, right)]
    if names[0] != names[1]:
        return f"functions {names[0]} and {names[1]}"
    found = ((name, _expr_difference(left[name], right[name])) for name in names[0])
    return next((f"in @{name}, {text}" for name, text in found if text is not None), None)


def _expr_difference(left: ir.Expr, right: ir.Expr) -> str | None:
    there: dict[int, ir.Expr] = {}
    back: dict[int, ir.Expr] = {}
    pairs = [(left, right)]
    while pairs:
        one, other = pairs.pop()
        if id(one) in there or id(other) in back:
            if there.get(id(one)) is not other or back.get(id(other)) is not one:
                return f"{one!r} and {other!r} are read by others than their counterparts"
            continue
        text = _shallow_difference(one, other)
        if text is not None:
            return text
        if not isinstance(one, _LEAVES):
            there[id(one)], back[id(other)] = other, one
        pairs += reversed([*zip(children(one), children(other), strict=True)])
    return None


def _shallow_difference(one: ir.Expr, other: ir.Expr) -> str | None:
    """What differs in two expressions, apart from what they read."""
    if type(one) is not type(other) or len(children(one)) != len(children(other)):
        return f"{one!r} and {other!r}"
    own = _OWN.get(type(one))
    if own is not None and not same_value(own(one), own(other)):
        return f"{one!r} has {own(one)} and {other!r} has {own(other)}"
    return None


#: Type of expression: what it holds besides other expressions.
_OWN: dict[type, Callable[[Any], Any]] = {
    ir.Call: lambda e: (e.op if isinstance(e.op, ir.Op) else "a function", all_attributes(e)),
    ir.Constant: lambda e: e.data,
    ir.Function: lambda e: (repr(e.ret_type), repr(e.type_params), e.attrs, len(e.params)),
    ir.GlobalVar: lambda e: e.name_hint,
    ir.Op: lambda e: e.name,
    ir.TupleGetItem: lambda e: e.index,
    ir.Var: lambda e: repr(e.type_annotation),
}
_LEAVES = (ir.Constant, ir.GlobalVar, ir.Op)


def same_value(one: Any, other: Any) -> bool:
    """Whether attributes are equal: lists and tuples are the same, numbers by value and kind."""
    if isinstance(one, ir.Constant) and isinstance(other, ir.Constant):
        one, other = one.data, other.data
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_value(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(same_value, one, other))
    return repr(one) == repr(other)
