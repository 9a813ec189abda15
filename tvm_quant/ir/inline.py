"""Calls between the functions of a module."""

from __future__ import annotations

from tvm import IRModule, relax
from tvm.ir import GlobalVar
from tvm.relax.expr_functor import PyExprMutator, mutator

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
    # Variables of a dataflow block that a callee brings would be outputs of the caller's.
    flat = relax.transform.ToNonDataflow()(IRModule({main: functions[main], **chosen}))
    inliner = _Inliner({gvar: flat[gvar] for gvar in chosen})
    whole = _DATAFLOW(IRModule({main: inliner.visit_expr(flat[main])}))
    result = IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    result[main] = whole[main]
    return result


_DATAFLOW = relax.transform.ConvertToDataflow(min_size=1)


@mutator
class _Inliner(PyExprMutator):
    """Unlike `Function.inline_functions`, with the caller's sizes in the shapes of callees."""

    def __init__(self, functions: dict[GlobalVar, relax.Function]):
        super().__init__()
        self.functions = functions

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        func = self.functions.get(call.op) if isinstance(call.op, GlobalVar) else None
        if func is None:
            return call
        func = relax.utils.copy_with_new_vars(func)
        body = func.bind_params(dict(zip(func.params, call.args, strict=True))).body
        for block in body.blocks:
            for binding in block.bindings:
                self.visit_binding(binding)
        return self.visit_expr(body.body)


def _callees(func: relax.Function) -> set[GlobalVar]:
    found: set[GlobalVar] = set()

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and isinstance(expr.op, GlobalVar):
            found.add(expr.op)

    relax.analysis.post_order_visit(func, visit)
    return found


def _reached(callees: dict[GlobalVar, set[GlobalVar]], start: GlobalVar) -> set[GlobalVar]:
    """Functions that `start` calls, and those that these call."""
    found: set[GlobalVar] = set()
    waiting = [start]
    while waiting:
        new = callees[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def _is_foreign(func: relax.Function) -> bool:
    return func.attrs is not None and bool(FOREIGN & set(func.attrs.keys()))
