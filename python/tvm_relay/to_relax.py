"""`to_relax`: the Relax module of a Relay function or module.

Each operator's row makes its Relax expression; types come from Relax alone. A variable without a
type gets the shape that its first reader needs, as a weight of a convolution does. A Relax network
may stand inside a Relay graph: what a front door returned continues in Relay.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Generator, Mapping
from typing import Any

import tvm
from tvm import IRModule, relax, tirx

from tvm_quant.errors import FrontendError, TvmQuantError, UnsupportedError
from tvm_quant.frontend.base import first_line
from tvm_quant.ir import constant
from tvm_relay import expr as relay
from tvm_relay import ty
from tvm_relay.inline import inline
from tvm_relay.module import Module
from tvm_relay.op import OpRow, row
from tvm_relay.op.base import dtype
from tvm_relay.text.source import located

#: A visit yields what it reads and is sent the Relax expression of it.
Visit = Generator[Any, relax.Expr, relax.Expr]


def to_relax(source: Module | relay.Expr | IRModule | relax.Function) -> IRModule:
    """The same network as a Relax module, in dataflow blocks.

    Args:
        source: a module, a function, a value whose free variables become parameters, or a Relax
            module, which is returned as it is, or function.

    Raises:
        FrontendError: an operator that nobody converts, or operands that do not fit it.
        UnsupportedError: recursion, or a type that Relax has no place for.

    >>> x = relay.var("x", shape=(2, 3))
    >>> to_relax(x + x)["main"].ret_ty
    R.Tensor((2, 3), dtype="float32")
    """
    if isinstance(source, IRModule):
        return source
    if isinstance(source, relax.Function):
        return IRModule({"main": source})
    module = source if isinstance(source, Module) else Module.from_expr(source)
    builder = relax.BlockBuilder()
    for name, function in module.functions.items():
        _Converter(builder, module).convert(name.name_hint, function)
    return relax.transform.ConvertToDataflow(min_size=1)(builder.get())


Module.lower = staticmethod(to_relax)


class _Converter:
    """Converts one function, without recursion: visits are generators on a stack of our own."""

    def __init__(self, builder: relax.BlockBuilder, module: Module):
        self.builder = builder
        self.module = module
        self.known: ChainMap[Any, relax.Expr] = ChainMap()
        self.alive: list[relay.Expr] = []  # keys of `known` are identities
        self.functions: dict[Any, relay.Function] = {}  # by the variable that `Let` binds
        self.calls: list[relay.Expr] = []  # functions that are being inlined

    def convert(self, name: str, function: relay.Function) -> None:
        with self.builder.function(name):
            params = [self._parameter(param) for param in function.params]
            result = self._result(self.visit(function.body))
            params = [
                self._settled(param, given)
                for param, given in zip(function.params, params, strict=True)
            ]
            self.builder.emit_func_output(result, params)

    def visit(self, root: Any) -> relax.Expr:
        """The Relax expression of `root`."""
        stack: list[Visit] = [self._start(root)]
        value: Any = None
        while stack:
            value = self._step(stack, value)
        return value

    def _step(self, stack: list[Visit], value: Any) -> Any:
        """Resume the innermost visit: it reads something more, or it is done."""
        try:
            stack.append(self._start(stack[-1].send(value)))
        except StopIteration as done:
            stack.pop()
            return done.value
        return None

    def _start(self, expr: Any) -> Visit:
        return self._known(expr) if _key(expr) in self.known else self._convert(expr)

    def _known(self, expr: Any) -> Visit:
        return self.known[_key(expr)]
        yield  # a generator that reads nothing

    def _convert(self, expr: Any) -> Visit:
        handler = _HANDLERS.get(type(expr), _Converter._foreign)
        try:
            value = yield from handler(self, expr)
        except (FrontendError, UnsupportedError) as error:
            raise located(error, expr) from error
        self._remember(expr, value)
        return value

    def _remember(self, expr: Any, value: relax.Expr) -> None:
        self.alive.append(expr)
        self.known[_key(expr)] = value

    # One kind of expression after the other ----------------------------------------------

    def _var(self, var: relay.Var) -> Visit:
        raise FrontendError(
            f"The variable '{var.name_hint}' has no type, and its reader does not say one: give "
            "relay.var a shape; or nothing binds it: pass it to relay.Function."
        )
        yield

    def _constant(self, const: relay.Constant) -> Visit:
        return constant(const.data)
        yield

    def _call(self, call: relay.Call) -> Visit:
        if not isinstance(call.op, relay.Op):
            return (yield from self._apply(call))
        entry = row(call.op.name)
        args = yield from self._operands(entry, call)
        attrs = entry.complete(call.attrs)
        _check_count(entry, args)
        return self._emit(self._build(entry, args, attrs))

    def _operands(self, entry: OpRow, call: relay.Call) -> Generator[Any, Any, list[relax.Expr]]:
        args: list[Any] = []
        for arg in call.args:
            untyped = isinstance(arg, relay.Var) and _key(arg) not in self.known
            args.append(None if untyped else (yield arg))
        if None in args and entry.weights is not None:
            shapes = [None if arg is None else _shape(arg) for arg in args]
            found = entry.weights(*shapes, **entry.complete(call.attrs))
            like = next(arg for arg in args if arg is not None)
            for index, name in enumerate(entry.operands):
                if args[index] is None and name in found:
                    self._declare(call.args[index], found[name], dtype(like))
        for index, arg in enumerate(args):
            if arg is None:
                args[index] = yield call.args[index]
        return args

    def _build(self, entry: OpRow, args: list[relax.Expr], attrs: Mapping[str, Any]) -> Any:
        try:
            return self.builder.normalize(entry.build(*args, **attrs))
        except TvmQuantError:
            raise
        except Exception as error:
            types = ", ".join(str(arg.ty) for arg in args)
            raise FrontendError(f"{entry.name}({types}): {first_line(error)}") from error

    def _emit(self, value: relax.Expr) -> relax.Expr:
        """Bind calls; constants, variables and literal tuples stay visible to their readers."""
        return self.builder.emit(value) if isinstance(value, relax.Call) else value

    def _apply(self, call: relay.Call) -> Visit:
        function = self._function(call.op)
        if any(function is active for active in self.calls):
            raise UnsupportedError(
                "The network calls a function from within itself; recursion is not converted."
            )
        args = []
        for arg in call.args:
            args.append((yield arg))  # noqa: PERF401
        if len(args) != len(function.params):
            raise FrontendError(
                f"{call.op!r} takes {len(function.params)} arguments, got {len(args)}."
            )
        self.calls.append(function)
        with _scope(self):
            for param, arg in zip(function.params, args, strict=True):
                self._remember(param, arg)
            value = yield function.body
        self.calls.pop()
        return value

    def _is_function(self, value: relay.Expr) -> bool:
        bound = _key(value) in self.functions
        return bound or isinstance(value, relay.Function | relay.GlobalVar)

    def _function(self, op: relay.Expr) -> relay.Function:
        target = self.module[op] if isinstance(op, relay.GlobalVar) else op
        target = self.functions.get(_key(target), target)
        if isinstance(target, relay.Function):
            return target
        raise UnsupportedError(f"A call of {op!r}; only operators and functions can be called.")

    def _tuple(self, value: relay.Tuple) -> Visit:
        fields = []
        for field in value.fields:
            fields.append((yield field))  # noqa: PERF401
        return self.builder.normalize(relax.Tuple(fields))

    def _tuple_get_item(self, item: relay.TupleGetItem) -> Visit:
        value = yield item.tuple_value
        fields = getattr(value.ty, "fields", ())
        if not 0 <= item.index < len(fields):
            raise FrontendError(f"Field {item.index} of a value that has {len(fields)} fields.")
        if isinstance(value, relax.Tuple):
            return value.fields[item.index]
        return self.builder.emit(relax.TupleGetItem(value, item.index))

    def _let(self, let: relay.Let) -> Visit:
        if self._is_function(let.value):
            self.functions[_key(let.var)] = self._function(let.value)
            return (yield let.body)
        value = yield let.value
        self._remember(let.var, value)
        return (yield let.body)

    def _if(self, choice: relay.If) -> Visit:
        condition = yield choice.cond
        branches = []
        for branch in (choice.true_branch, choice.false_branch):
            self.builder._begin_binding_block()
            with _scope(self):
                value = self._emit_any((yield branch))
            branches.append(relax.SeqExpr([self.builder._end_block()], value))
        return self.builder.emit(relax.If(self._emit_any(condition), *branches))

    def _foreign(self, value: Any) -> Visit:
        """A Relax expression: the body of a network that a front door made."""
        if not isinstance(value, relax.Expr):
            raise UnsupportedError(f"{value!r} is no value that a network can compute.")
        return inline(self.builder, value, self.known)
        yield

    # Parameters and results --------------------------------------------------------------

    def _parameter(self, param: Any) -> relax.Var | None:
        """The Relax parameter; None where the type is still to be found."""
        if isinstance(param, relax.Var):
            self._remember(param, relax.Var(str(param.name), param.ty))
        elif param.type_annotation is not None:
            self._remember(param, relax.Var(param.name_hint, to_type(param.type_annotation)))
        return self.known.get(_key(param))

    def _settled(self, param: Any, given: relax.Var | None) -> relax.Var:
        found = given if given is not None else self.known.get(_key(param))
        if found is None:
            raise FrontendError(
                f"The parameter '{param.name_hint}' has no type, and nothing reads it: give "
                "relay.var a shape."
            )
        return found

    def _declare(self, var: Any, shape: Any, kind: str) -> None:
        self._remember(var, relax.Var(var.name_hint, relax.TensorType(tuple(shape), kind)))

    def _result(self, value: relax.Expr) -> relax.Expr:
        """What a function returns may be a tuple of values, nested."""
        if isinstance(value, relax.Tuple):
            return relax.Tuple([self._result(field) for field in value.fields])
        return self._emit_any(value)

    def _emit_any(self, value: relax.Expr) -> relax.Expr:
        return value if isinstance(value, relax.Var) else self.builder.emit(value)


_HANDLERS: dict[type, Any] = {
    relay.Var: _Converter._var,
    relay.Constant: _Converter._constant,
    relay.Call: _Converter._call,
    relay.Tuple: _Converter._tuple,
    relay.TupleGetItem: _Converter._tuple_get_item,
    relay.Let: _Converter._let,
    relay.If: _Converter._if,
}


class _scope:
    """What is converted inside is not known outside: a branch, a function that is inlined."""

    def __init__(self, converter: _Converter):
        self.converter = converter

    def __enter__(self) -> None:
        self.converter.known = self.converter.known.new_child()

    def __exit__(self, *_: object) -> None:
        self.converter.known = self.converter.known.parents


def to_type(source: ty.Type) -> Any:
    """The Relax type; each dimension that is not known gets a symbol of its own.

    Raises:
        UnsupportedError: a type variable.

    >>> len(to_type(ty.TupleType((ty.TensorType((1,), "int8"),))).fields)
    1
    """
    if isinstance(source, ty.TensorType):
        return relax.TensorType([_dimension(dim) for dim in source.shape], source.dtype)
    if isinstance(source, ty.TupleType):
        return relax.TupleType([to_type(field) for field in source.fields])
    raise UnsupportedError(f"A value of type {source}; networks compute tensors and tuples.")


def _dimension(dim: Any) -> Any:
    return dim if isinstance(dim, int) else tirx.Var("n", "int64")


def _key(expr: Any) -> Any:
    """Identity: of a Python object, or of the TVM object that several Python objects stand for."""
    return expr if isinstance(expr, tvm.Object) else id(expr)


def _shape(value: relax.Expr) -> Any:
    known = getattr(value.ty, "shape", None)
    if known is None:
        return None
    return tuple(int(dim) if hasattr(dim, "value") else dim for dim in known.values)


def _check_count(entry: OpRow, args: list[relax.Expr]) -> None:
    optional = sum(
        entry.parameters[name].default is not entry.parameters[name].empty
        for name in entry.operands
    )
    low, high = len(entry.operands) - optional, len(entry.operands)
    if not low <= len(args) <= high:
        raise FrontendError(f"{entry.name} takes {entry.operands}, got {len(args)} operands.")
