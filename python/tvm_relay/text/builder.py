"""From the parse tree of `relay.lark` to expressions: one method for each rule.

Children come before their parents and from left to right, so a scope opens in the method of the
rule that begins it (`signature`, `opened`) and closes in the method of the rule that ends it.
Nothing here recurses: a text may nest deeper than Python's stack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import tvm
from lark import Token, Tree, v_args
from lark.exceptions import VisitError
from lark.tree import Meta
from lark.visitors import Transformer_NonRecursive

from tvm_quant.errors import FrontendError
from tvm_relay import expr as ir
from tvm_relay.expr import Attrs, Constant, Expr, Function, GlobalVar, Var
from tvm_relay.module import Module
from tvm_relay.text.literals import read_number, read_scalar, read_string
from tvm_relay.text.metadata import MetaTable, parse_reference
from tvm_relay.text.scopes import ScopeError, Scopes
from tvm_relay.text.source import Place, RelayTextError, Source
from tvm_relay.ty import Any as AnyDimension
from tvm_relay.ty import FuncType, TensorType, TupleType, Type

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
class _Attribute:
    name: str
    value: Any


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


_MaybeType: TypeAlias = Type | None


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


def _with_place(func: Callable[..., Any], _rule: str, children: list[Any], meta: Meta) -> Any:
    place = None if meta.empty else Place(meta.line, meta.column)
    return func(place, *children)


@v_args(wrapper=_with_place)
class _Builder(Transformer_NonRecursive[Token, Any]):
    """Makes the module, or the expression, of one text; see `build`."""

    def __init__(
        self, source: Source, metadata: MetaTable, functions: Mapping[GlobalVar, Function]
    ) -> None:
        super().__init__(visit_tokens=False)
        self._source = source
        self._metadata = metadata
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
        self, place: Place, generics: None, inputs: list[Any], result: _MaybeType
    ) -> tuple[tuple[Var, ...], Attrs, _MaybeType]:
        del generics
        params = tuple(item for item in inputs if isinstance(item, Var))
        attrs = self._attrs(place, [item for item in inputs if isinstance(item, _Attribute)])
        names = [param.name_hint for param in params]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise self._source.error(f"two parameters have the name %{twice[0]}.", place)
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

    def inputs(self, _place: Place | None, *items: Var | _Attribute) -> list[Any]:
        return list(items)

    def parameter(self, _place: Place, name: Token, _attrs: Any, annotation: _MaybeType) -> Var:
        return Var(_name(name), annotation)

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

    def let_variable(self, _place: Place, name: Token, annotation: _MaybeType) -> Var:
        var = Var(_name(name), annotation)
        self._scopes.bind_pending(var)
        return var

    def let(self, _place: Place, var: Var, value: Expr) -> _Bound:
        self._scopes.settle(var)
        return _Bound(var, value)

    def graph(self, place: Place, name: Token, value: Expr) -> _Bound:
        self._scoped(place, self._scopes.define, self._number(name[1:], place), value)
        return _Bound()

    def free_variable(self, _place: Place, name: Token, annotation: _MaybeType) -> _Bound:
        self._scopes.bind_outermost(Var(_name(name), annotation))
        return _Bound()

    def unused(self, _place: Place, value: Expr) -> _Bound:
        return _Bound(Var("", None), value, named=False)

    # Expressions

    def infix(self, _place: Place, left: Expr, operator: Token, right: Expr) -> Expr:
        return ir.Call(ir.Op(INFIX[operator]), (left, right))

    def call(self, place: Place, function: Expr, operands: list[Any]) -> Expr:
        args = [item for item in operands if not isinstance(item, _Attribute)]
        given = [item for item in operands if isinstance(item, _Attribute)]
        if args and isinstance(args[-1], _MetaAttrs):
            stored = args.pop()
            self._loose.pop(id(stored), None)
            given += [_Attribute(name, value) for name, value in stored.attrs.items()]
        attrs = self._attrs(place, [item for item in given if item.name != _CLASS])
        return ir.Call(function, tuple(args), attrs)

    def operands(self, _place: Place | None, *items: Any) -> list[Any]:
        return list(items)

    def projection(self, place: Place, value: Expr, index: Token) -> Expr:
        if isinstance(value, Constant):
            raise self._source.error(
                "a number has no fields. A float has a suffix, as in 1.5f.", place
            )
        return ir.TupleGetItem(value, self._number(index, place))

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
                    value = ir.TupleGetItem(value, self._number(index, place))
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

    def operator(self, _place: Place, token: Token) -> Expr:
        return ir.Op(str(token))

    def fields(self, _place: Place, *fields: Expr) -> Expr:
        return ir.Tuple(fields)

    def conditional(self, _place: Place, cond: Expr, then: Expr, otherwise: Expr) -> Expr:
        return ir.If(cond, then, otherwise)

    def meta_expression(self, place: Place, token: Token) -> Expr:
        value = self.meta_value(place, token)
        if isinstance(value, Attrs):
            value = _MetaAttrs(value)
            self._loose[id(value)] = (value, place)
        if not isinstance(value, Expr):
            raise self._error(f"{token} is no constant: nothing else can stand here.", token)
        return value

    # Attributes

    def attribute(self, _place: Place, name: Token, value: Any) -> _Attribute:
        return _Attribute(str(name), value)

    def attributes(self, place: Place, *items: _Attribute) -> Attrs:
        return self._attrs(place, items)

    def number(self, place: Place, token: Token) -> Any:
        return self._literal(place, read_number, token)

    def string(self, _place: Place, token: Token) -> str:
        return read_string(token)

    def nothing(self, _place: Place, _token: Token) -> None:
        return None

    def unknown(self, _place: Place) -> AnyDimension:
        return AnyDimension()

    def values(self, _place: Place | None, *items: Any) -> tuple[Any, ...]:
        return items

    def meta_value(self, place: Place, token: Token) -> Any:
        reference = parse_reference(token)
        if reference is None:
            raise self._error("a reference to metadata has the form meta[type][number].", token)
        try:
            return self._metadata.get(*reference)
        except FrontendError as error:
            raise self._source.error(f"{token}: {error}", place) from None

    # Types; None where the text leaves a part open.

    def tensor_type(self, _place: Place, shape: tuple[Any, ...], dtype: Token) -> _MaybeType:
        return TensorType(shape, self._dtype(dtype))

    def scalar_type(self, _place: Place, dtype: Token) -> _MaybeType:
        return TensorType((), self._dtype(dtype))

    def generic_type(self, _place: Place, name: Token, *_args: _MaybeType) -> _MaybeType:
        raise self._no_type(name)

    def tuple_type(self, _place: Place, fields: Sequence[_MaybeType]) -> _MaybeType:
        known = [field for field in fields if field is not None]
        return TupleType(tuple(known)) if len(known) == len(fields) else None

    def function_type(
        self, _place: Place, params: Sequence[_MaybeType], result: _MaybeType
    ) -> _MaybeType:
        known = [param for param in params if param is not None]
        if result is None or len(known) < len(params):
            return None
        return FuncType(tuple(known), result)

    def no_type(self, _place: Place) -> _MaybeType:
        return None

    def types(self, _place: Place | None, *items: _MaybeType) -> Sequence[_MaybeType]:
        return items

    def shape(self, place: Place, *sizes: Any) -> tuple[Any, ...]:
        for size in sizes:
            if not isinstance(size, int | AnyDimension) or (isinstance(size, int) and size < 0):
                raise self._source.error(
                    f"a dimension is {size!r}; expected a number that is not negative, or ?.", place
                )
        return sizes

    def known(self, place: Place, token: Token) -> int:
        return self._number(token, place)

    def _dtype(self, token: Token) -> str:
        try:
            dtype = tvm.DataType(str(token))
        except Exception:
            raise self._no_type(token) from None
        if dtype.lanes != 1:
            raise self._error(f"the dtype {token} is a vector; tensors hold scalars.", token)
        return str(token)

    def _no_type(self, token: Token) -> RelayTextError:
        return self._error(
            f"{token} is no dtype. Where it is an algebraic data type or a type parameter: Relax "
            "has neither; use tuples and tensors.",
            token,
        )

    # Help

    def _attrs(self, place: Place, items: Sequence[_Attribute]) -> Attrs:
        names = [item.name for item in items]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise self._source.error(f"the attribute '{twice[0]}' is given twice.", place)
        return Attrs(**{item.name: item.value for item in items})

    def _global(self, name: str) -> GlobalVar:
        return self._globals.setdefault(name, GlobalVar(name))

    def _number(self, text: str, place: Place) -> int:
        value = self._literal(place, read_number, text)
        if not 0 <= value < 2**63:
            raise self._source.error(f"{text} is out of range here.", place)
        return int(value)

    def _literal(self, place: Place, read: Callable[[str], Any], text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise self._source.error(f"{error}.", place) from None

    def _scoped(self, place: Place, look: Callable[..., Any], *args: Any) -> Any:
        try:
            return look(*args)
        except ScopeError as error:
            raise self._source.error(str(error), place) from None

    def _error(self, message: str, token: Token) -> RelayTextError:
        assert token.line is not None and token.column is not None
        return self._source.error(message, Place(token.line, token.column))


def _name(token: Token) -> str:
    """The name in `%x`, `@main` or `%"x y"`."""
    name = token[1:]
    return read_string(name) if name.startswith('"') else name
