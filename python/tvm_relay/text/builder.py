"""From the parse tree of `relay.lark` to expressions: one method for each rule.

Children come before their parents and from left to right, so a scope opens in the method of the
rule that begins it (`signature`, `opened`) and closes in the method of the rule that ends it.
Nothing here recurses: a text may nest deeper than Python's stack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lark import Token, Tree
from lark.exceptions import VisitError

from tvm_relay import expr as ir
from tvm_relay.expr import Attrs, Constant, Expr, Function, GlobalVar, Var
from tvm_relay.module import Module
from tvm_relay.op import row
from tvm_relay.text.defaults import REPEATED, left_out
from tvm_relay.text.literals import read_scalar, read_string
from tvm_relay.text.metadata import MetaTable
from tvm_relay.text.scopes import Scopes
from tvm_relay.text.source import Place, Source, remember
from tvm_relay.text.value_rules import Attribute, MaybeType, ValueRules, with_place

VERSION = "0.0.5"

#: Signs between two operands, and the operators that they are.
INFIX = {
    "+": "add",
    "-": "subtract",
    "*": "multiply",
    "/": "divide",
    "<": "less",
    ">": "greater",
    "<=": "less_equal",
    ">=": "greater_equal",
    "==": "equal",
    "!=": "not_equal",
}
#: Attributes of functions and variables that say where TVM puts them, which Relax decides anew.
_PLACEMENT = frozenset({"virtual_device"})
#: Says which of TVM's classes holds the attributes of a call.
_CLASS = "attrs_type_key"


@dataclass(frozen=True)
class _Bound:
    """A step of a block: a variable with its value; without a variable, nothing is left to do.

    `named` variables are known to the rest of the block.
    """

    var: Var | None = None
    value: Expr | None = None
    named: bool = True


@dataclass(frozen=True, eq=False, repr=False)
class _MetaAttrs(Expr):
    """Attributes of the metadata, where an operand could stand; only a call takes them."""

    attrs: Attrs


def build(
    tree: Tree[Token],
    source: Source,
    metadata: MetaTable,
    functions: Mapping[GlobalVar, Function],
) -> Module | Expr:
    """The module, or the lone expression, of a parse tree.

    Args:
        source: the text, for errors.
        metadata: what `meta[...]` names.
        functions: functions of another module; the text may call them, and they are kept.

    Raises:
        RelayTextError: a name that stands for nothing, a value out of range, what Relax lacks.
    """
    try:
        return _Builder(source, metadata, functions).transform(tree)  # type: ignore[no-any-return]
    except VisitError as error:
        raise error.orig_exc from None


@with_place
class _Builder(ValueRules):
    """Makes the module, or the expression, of one text; see `build`."""

    def __init__(
        self, source: Source, metadata: MetaTable, functions: Mapping[GlobalVar, Function]
    ) -> None:
        super().__init__(source, metadata)
        self._scopes = Scopes()
        self._functions: dict[GlobalVar | str, Function] = dict(functions.items())
        self._globals = {key.name_hint: key for key in functions}
        self._called: dict[str, Place] = {}
        self._loose: dict[int, tuple[_MetaAttrs, Place]] = {}

    # Programs

    def module(self, place: Place | None, version: Token | None, *_definitions: Any) -> Module:
        self._check_version(version, place or Place(1, 1))
        self._check_loose()
        for name, where in self._called.items():
            if self._globals[name] not in self._functions:
                known = sorted(
                    key.name_hint for key in self._globals.values() if key in self._functions
                )
                raise self._source.error(
                    f"@{name} is called and not defined; the module has {known}.", where
                )
        return Module(self._functions)

    def lone(self, place: Place, version: Token | None, body: Expr) -> Expr:
        if version is not None:
            self._check_version(version, place)
        self._check_loose()
        return body

    def _check_loose(self) -> None:
        for _attrs, place in self._loose.values():
            raise self._source.error("attributes can only stand last in a call.", place)

    def definition(self, _place: Place, name: Token, function: Function) -> None:
        key = self._global(_name(name))
        if key in self._functions:
            raise self._error(f"two functions have the name @{key.name_hint}.", name)
        self._functions[key] = function
        self._scopes.forget_all()

    def _check_version(self, version: Token | None, place: Place) -> None:
        advice = f'Relay texts of version {VERSION} begin with #[version = "{VERSION}"].'
        if version is None:
            raise self._source.error(f"the version of the format is missing. {advice}", place)
        given = version.rstrip("]").split("=")[-1].strip().strip('"').removeprefix("v")
        if given != VERSION:
            raise self._error(f"the format has version {given}. {advice}", version)

    # Functions and scopes

    def signature(
        self, place: Place, generics: None, inputs: list[Any], result: MaybeType
    ) -> tuple[tuple[Var, ...], Attrs, MaybeType]:
        del generics
        params = tuple(item for item in inputs if isinstance(item, Var))
        attrs = self._attrs(place, [item for item in inputs if isinstance(item, Attribute)])
        names = [param.name_hint for param in params]
        self._check_once(place, "two parameters have the name %{}.", names)
        self._scopes.open(function=True)
        for param in params:
            self._scopes.bind(param)
        return params, attrs, result

    def function(self, _place: Place, signature: tuple[Any, ...], body: Expr) -> Function:
        params, attrs, result = signature
        self._scopes.close(function=True)
        kept = {name: value for name, value in attrs.items() if name not in _PLACEMENT}
        return Function(params, body, result, (), Attrs(**kept))

    def generics(self, _place: Place, first: Token, *_more: Token) -> None:
        raise self._error(
            "a function with type parameters: Relax has none. Write one function for each type "
            "that it is called with.",
            first,
        )

    def inputs(self, _place: Place | None, *items: Var | Attribute) -> list[Any]:
        return list(items)

    def parameter(self, place: Place, name: Token, _attrs: Any, annotation: MaybeType) -> Var:
        var = Var(_name(name), annotation)
        remember(var, self._source, place)
        return var

    def opened(self, _place: Place) -> None:
        self._scopes.open()

    def branch(self, _place: Place, _opened: None, body: Expr) -> Expr:
        self._scopes.close()
        return body

    def block(self, _place: Place, *steps: Any) -> Expr:
        *bindings, body = steps
        bound = [step for step in bindings if step.var is not None]
        self._scopes.forget(sum(step.named for step in bound))
        for step in reversed(bound):
            body = ir.Let(step.var, step.value, body)
        return body  # type: ignore[no-any-return]

    # Bindings

    def let_variable(self, _place: Place, name: Token, annotation: MaybeType) -> Var:
        var = Var(_name(name), annotation)
        self._scopes.bind_pending(var)
        return var

    def let(self, _place: Place, var: Var, value: Expr) -> _Bound:
        self._scopes.settle(var)
        return _Bound(var, value)

    def graph(self, place: Place, name: Token, value: Expr) -> _Bound:
        self._scoped(place, self._scopes.define, self._number(name[1:], place), value)
        return _Bound()

    def free_variable(self, _place: Place, name: Token, annotation: MaybeType) -> _Bound:
        self._scopes.bind_outermost(Var(_name(name), annotation))
        return _Bound()

    def unused(self, _place: Place, value: Expr) -> _Bound:
        return _Bound(Var("", None), value, named=False)

    # Expressions

    def infix(self, place: Place, left: Expr, operator: Token, right: Expr) -> Expr:
        return self._made(place, ir.Call(ir.Op(INFIX[operator]), (left, right)))

    def call(self, place: Place, function: Expr, operands: list[Any]) -> Expr:
        args = [item for item in operands if not isinstance(item, Attribute)]
        given = [item for item in operands if isinstance(item, Attribute)]
        if args and isinstance(args[-1], _MetaAttrs):
            stored = args.pop()
            self._loose.pop(id(stored), None)
            given += [Attribute(name, value) for name, value in stored.attrs.items()]
        attrs = self._attrs(place, [item for item in given if item.name != _CLASS])
        if isinstance(function, ir.Op):
            attrs = self._completed(place, function, attrs)
        return self._made(place, ir.Call(function, tuple(args), attrs))

    def _completed(self, place: Place, op: ir.Op, attrs: Attrs) -> Attrs:
        """All attributes of a call of an operator."""
        repeated = REPEATED.get(op.name, frozenset())
        given = {name: value for name, value in attrs.items() if name not in repeated}
        with self._at(place):
            return row(op.name).complete({**left_out(op.name), **given})

    def operands(self, _place: Place | None, *items: Any) -> list[Any]:
        return list(items)

    def projection(self, place: Place, value: Expr, index: Token) -> Expr:
        if isinstance(value, Constant):
            raise self._source.error(
                "a number has no fields. A float has a suffix, as in 1.5f.", place
            )
        return self._made(place, ir.TupleGetItem(value, self._number(index, place)))

    def scalar(self, place: Place, token: Token) -> Expr:
        return Constant(self._literal(place, read_scalar, token))

    def local(self, place: Place, token: Token) -> Expr:
        name = _name(token)
        var = self._scoped(place, self._scopes.variable, name)
        if var is not None:
            return var  # type: ignore[no-any-return]
        return self._projected(place, name)

    def _projected(self, place: Place, name: str) -> Expr:
        """`%x.0`, where `x` is a variable and `x.0` is none."""
        head, *fields = name.split(".")
        while fields and all(part.isdigit() for part in fields):
            var = self._scoped(place, self._scopes.variable, head)
            if var is not None:
                value: Expr = var
                for index in fields:
                    item = ir.TupleGetItem(value, self._number(index, place))
                    value = self._made(place, item)
                return value
            head = f"{head}.{fields.pop(0)}"
        raise self._source.error(
            f"%{name} is not defined here. Variables are parameters of the function around, or "
            f"bound above by let %{name} = ...",
            place,
        )

    def node(self, place: Place, token: Token) -> Expr:
        number = self._number(token[1:], place)
        return self._scoped(place, self._scopes.node, number)  # type: ignore[no-any-return]

    def function_name(self, place: Place, token: Token) -> Expr:
        key = self._global(_name(token))
        self._called.setdefault(key.name_hint, place)
        return key

    def operator(self, place: Place, token: Token) -> Expr:
        with self._at(place):
            return ir.Op(row(str(token)).name)

    def fields(self, place: Place, *fields: Expr) -> Expr:
        return self._made(place, ir.Tuple(fields))

    def conditional(self, place: Place, cond: Expr, then: Expr, otherwise: Expr) -> Expr:
        return self._made(place, ir.If(cond, then, otherwise))

    def meta_expression(self, place: Place, token: Token) -> Expr:
        value = self.meta_value(place, token)
        if isinstance(value, Attrs):
            value = _MetaAttrs(value)
            self._loose[id(value)] = (value, place)
        if not isinstance(value, Expr):
            raise self._error(f"{token} is no constant: nothing else can stand here.", token)
        return value

    # Help

    def _made(self, place: Place, expr: Expr) -> Expr:
        """An expression, whose place is kept for errors of its conversion."""
        remember(expr, self._source, place)
        return expr

    def _global(self, name: str) -> GlobalVar:
        return self._globals.setdefault(name, GlobalVar(name))

    def _scoped(self, place: Place, look: Callable[..., Any], *args: Any) -> Any:
        with self._at(place):
            return look(*args)


def _name(token: Token) -> str:
    """The name in `%x`, `@main` or `%"x y"`."""
    name = token[1:]
    return read_string(name) if name.startswith('"') else name
