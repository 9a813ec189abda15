"""Calls between the functions of a module."""

from __future__ import annotations

from tvm import IRModule, relax

#: Attributes of functions that another compiler takes as a whole.
FOREIGN = frozenset({"Codegen", "Composite"})


def inlined(mod: IRModule, name: str = "main") -> IRModule:
    """`mod` with the bodies of Relax functions where the function `name`, if any, calls them.

    All functions stay. A call stays where its function calls itself, by whatever way, or is for
    another compiler.
    """
    functions = {
        gvar: func for gvar, func in mod.functions_items() if isinstance(func, relax.Function)
    }
    callees = {gvar: _callees(func) & functions.keys() for gvar, func in functions.items()}
    main = next((gvar for gvar in functions if gvar.name_hint == name), None)
    if main is None:
        return mod
    chosen = {
        gvar: functions[gvar]
        for gvar in _reached(callees, main)
        if gvar not in _reached(callees, gvar) and not _is_foreign(functions[gvar])
    }
    if not chosen:
        return mod
    result = IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    result[main] = mod[main].inline_functions(chosen)
    return result


def _callees(func: relax.Function) -> set[relax.GlobalVar]:
    found: set[relax.GlobalVar] = set()

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and isinstance(expr.op, relax.GlobalVar):
            found.add(expr.op)

    relax.analysis.post_order_visit(func, visit)
    return found


def _reached(
    callees: dict[relax.GlobalVar, set[relax.GlobalVar]], start: relax.GlobalVar
) -> set[relax.GlobalVar]:
    """Functions that `start` calls, and those that these call."""
    found: set[relax.GlobalVar] = set()
    waiting = [start]
    while waiting:
        new = callees[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def _is_foreign(func: relax.Function) -> bool:
    return func.attrs is not None and bool(FOREIGN & set(func.attrs.keys()))
