"""The walk that all canonical rewrites share.

A rewrite is a function (scope, call) -> expression or None. It looks at one call, sees what its
operands are bound to, and returns what to compute instead; whatever it replaces but leaves behind
is removed as dead code afterwards. Branches of `If` are not entered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import tvm
from tvm import IRModule, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_quant.ir import (
    bindings,
    constant_value,
    consumers,
    op_name,
    with_node_names,
)
from tvm_quant.ir.bindings import flat_operands
from tvm_quant.transform.canonicalize.naming import fresh_name, name_aliases, recorded_names

Rewrite = Callable[["Scope", relax.Expr], relax.Expr | None]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rewrite and what it looks at: operators without "relax.", or "tuple item"."""

    operators: tuple[str, ...]
    rewrite: Rewrite


TUPLE_ITEM = "tuple item"


class Scope:
    """What a rewrite may ask about the function around a call."""

    def __init__(self, mod: IRModule, func: relax.Function, builder: relax.BlockBuilder):
        self.mod = mod
        self.builder = builder
        self.names = recorded_names(func)
        self.current: relax.Expr = relax.Tuple([])  # the variable that the call at hand is bound to
        self._uses = Counter({str(v.name): len(uses) for v, uses in consumers(func).items()})
        self._taken = {str(v.name) for v in (*func.params, *(b.var for b in bindings(func)))}
        self._constant_uses = _count_constants(func)

    def value(self, expr: relax.Expr) -> relax.Expr:
        """What a variable is bound to, through other variables; an input stays what it is."""
        while isinstance(expr, relax.Var):
            bound = self.builder.lookup_binding(expr)
            if bound is None:
                return expr
            expr = bound
        return expr

    def used_once(self, expr: relax.Expr) -> bool:
        """Whether nothing but the call at hand needs the value of the variable `expr`."""
        while isinstance(expr, relax.Var):
            if self._uses[str(expr.name)] != 1:
                return False
            expr = self.builder.lookup_binding(expr)
        return expr is not None

    def is_shared(self, constant: relax.Expr) -> bool:
        """Whether more than one call reads a constant."""
        return self._constant_uses[constant] > 1

    def emit(self, value: relax.Expr, like: relax.Expr) -> relax.Var:
        """A new variable that only the result of the rewrite reads, named after `like`."""
        name = str(like.name) if isinstance(like, relax.Var) else "lv"
        var = self.builder.emit(value, name_hint=fresh_name(name, self._taken))
        self._taken.add(str(var.name))
        self._uses[str(var.name)] = 1
        if name in self.names:
            self.names[str(var.name)] = self.names[name]
        return var


def constant(value: npt.ArrayLike, dtype: str = "float32") -> relax.Expr:
    """A constant tensor in contiguous memory."""
    return relax.const(np.array(value, dtype=dtype, order="C"), dtype)


def rewrite_function(mod: IRModule, rules: Iterable[Rule], max_walks: int = 12) -> IRModule:
    """Apply `rules` to `main` until nothing changes, and remove what is dead."""
    table = _by_operator(rules)
    for _ in range(max_walks):
        walker = _Walker(mod, table)
        rewritten = walker.run()
        if not walker.applied:
            break
        mod = clean(rewritten)
    return mod


def applicable(mod: IRModule, rules: Iterable[Rule]) -> list[tuple[str, str]]:
    """(variable, rewrite) of what `rules` would still change in `main`."""
    walker = _Walker(mod, _by_operator(rules))
    walker.run()
    return walker.applied


def clean(mod: IRModule) -> IRModule:
    """`mod` without trivial bindings, unused bindings and unused functions."""
    return tvm.transform.Sequential(
        [relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination(["main"])]
    )(name_aliases(mod))


@mutator
class _Walker(PyExprMutator):
    def __init__(self, mod: IRModule, table: Mapping[str, list[Rewrite]]):
        super().__init__(mod)
        self.mod = mod
        self.table = table
        self.depth = 0
        self.applied: list[tuple[str, str]] = []  # (variable, rewrite)
        self.scope = Scope(mod, mod["main"], self.builder_)

    def run(self) -> IRModule:
        gvar = self.mod.get_global_var("main")
        func = self.mod[gvar]
        func = self.visit_expr(func)
        if self.scope.names:
            func = with_node_names(func, self.scope.names)
        self.builder_.update_func(gvar, func)
        return self.builder_.get()

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if not self.depth:
            self.scope.current = binding.var
        super().visit_var_binding_(binding)

    def visit_if_(self, op: relax.If) -> relax.Expr:
        self.depth += 1
        result = super().visit_if_(op)
        self.depth -= 1
        return result

    def visit_tuple_getitem_(self, op: relax.TupleGetItem) -> relax.Expr:
        return self._rewrite(super().visit_tuple_getitem_(op))

    def visit_call_(self, op: relax.Call) -> relax.Expr:
        return self._rewrite(self._inline(super().visit_call_(op)))

    def _rewrite(self, value: relax.Expr) -> relax.Expr:
        if self.depth:
            return value
        for rewrite in self.table.get(_key(value), ()):
            new = rewrite(self.scope, value)
            if new is not None:
                self.applied.append((str(self.scope.current.name), rewrite.__name__))
                new = self.builder_.normalize(new)
                return self._rewrite(new) if isinstance(new, relax.Call) else new
        return value

    def _inline(self, call: relax.Expr) -> relax.Expr:
        """`call` with variables that are bound to a constant replaced by the constant."""
        if not isinstance(call, relax.Call) or _key(call) == "":
            return call
        args = [self._constant_or(arg) for arg in call.args]
        if all(new.same_as(old) for new, old in zip(args, call.args, strict=True)):
            return call
        return self.builder_.normalize(relax.Call(call.op, args, call.attrs, call.ty_args))

    def _constant_or(self, operand: relax.Expr) -> relax.Expr:
        if isinstance(operand, relax.Tuple):
            fields = [self._constant_or(field) for field in operand.fields]
            same = all(new.same_as(old) for new, old in zip(fields, operand.fields, strict=True))
            return operand if same else relax.Tuple(fields)
        if not isinstance(operand, relax.Var):
            return operand
        value = self.scope.value(operand)
        return value if constant_value(value) is not None else operand


def _by_operator(rules: Iterable[Rule]) -> dict[str, list[Rewrite]]:
    table: dict[str, list[Rewrite]] = {}
    for rule in rules:
        for operator in rule.operators:
            table.setdefault(operator, []).append(rule.rewrite)
    return table


def _key(value: relax.Expr) -> str:
    if isinstance(value, relax.TupleGetItem):
        return TUPLE_ITEM
    name = op_name(value) or ""
    return name.removeprefix("relax.") if name.startswith("relax.") else ""


def _count_constants(func: relax.Function) -> Counter[relax.Expr]:
    return Counter(
        operand
        for binding in bindings(func)
        if isinstance(binding.value, relax.Call)
        for operand in flat_operands(binding.value)
        if constant_value(operand) is not None
    )
