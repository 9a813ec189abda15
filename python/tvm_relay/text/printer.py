"""Writing Relay's text format: `astext`.

As TVM's printer does it: every value that is no name or constant gets a number, `%0 = ...`, except
the last one of a block and the value of a `let`; a value that several others read is written once,
where it is met first. Numbers go on through a module, names start anew in each function.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import tvm

from tvm_quant.errors import FrontendError
from tvm_relay import expr as ir
from tvm_relay.attributes import all_attributes
from tvm_relay.module import Module
from tvm_relay.structural import same_value
from tvm_relay.text.builder import VERSION
from tvm_relay.text.defaults import left_out
from tvm_relay.text.literals import write_number, write_scalar, write_string
from tvm_relay.text.metadata import CONSTANT, write_metadata
from tvm_relay.ty import Any as AnyDimension
from tvm_relay.ty import FuncType, TensorType, TupleType, Type
from tvm_relay.walk import children, post_order

_INDENT = "  "
#: Names that stand as they are; others stand in quotes, which TVM's own parser does not read.
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:/[A-Za-z0-9_]+)*")

#: A writer yields the writers of its parts and is sent their texts: no depth is too deep.
Writer: TypeAlias = Generator[Any, Any, str]


def astext(source: Module | ir.Expr, show_meta_data: bool = True) -> str:
    """A module, a function or another expression in version 0.0.5 of Relay's format.

    Args:
        show_meta_data: whether constants that are no scalars follow as metadata. Without them the
            text is for reading alone.

    Raises:
        FrontendError: an attribute or an operand that the format has no words for.

    >>> x = ir.var("x", shape=(2, 3))
    >>> print(astext(Module.from_expr(ir.Call(ir.Op("nn.relu"), (x + x,)))))
    #[version = "0.0.5"]
    def @main(%x: Tensor[(2, 3), float32]) {
      %0 = add(%x, %x);
      nn.relu(%0)
    }
    """
    printer = _Printer()
    pieces = [f'#[version = "{VERSION}"]\n']
    if isinstance(source, Module):
        pieces.append("\n".join(printer.definitions(source)))
    else:
        pieces.append(printer.lone(source))
    if printer.constants and show_meta_data:
        pieces.append(f"\n{write_metadata(printer.constants)}")
    return "".join(pieces)


def type_text(kind: Type) -> str:
    """A type as the format writes it.

    >>> type_text(TupleType((TensorType((1, 2)), TensorType((), "int32"))))
    '(Tensor[(1, 2), float32], int32)'
    """
    if isinstance(kind, TensorType):
        sizes = ", ".join(str(size) for size in kind.shape)
        return f"Tensor[({sizes}), {kind.dtype}]" if kind.shape else kind.dtype
    if isinstance(kind, TupleType):
        return _in_parentheses([type_text(field) for field in kind.fields])
    if isinstance(kind, FuncType):
        inputs = ", ".join(type_text(arg) for arg in kind.arg_types)
        return f"fn ({inputs}) -> {type_text(kind.ret_type)}"
    raise FrontendError(f"The type {kind!r} cannot be written as Relay text.")


class _Printer:
    """Writes the functions of one text.

    Attributes:
        constants: those of the metadata, in order.
    """

    def __init__(self) -> None:
        self.constants: list[ir.Constant] = []
        self._places: dict[int, int] = {}
        self._counter = 0
        self._texts: dict[int, str] = {}
        self._readers: Counter[int] = Counter()
        self._names: set[str] = set()
        self._lines: list[list[str]] = []

    def definitions(self, module: Module) -> Iterable[str]:
        """The text of each function of a module."""
        for name, function in module.functions.items():
            self._begin(function)
            yield _run(self._function(f"def @{_quoted(name.name_hint)}", function)) + "\n"

    def lone(self, expr: ir.Expr) -> str:
        """The text of an expression."""
        self._begin(expr)
        return "\n".join(_run(self._block(expr))) + "\n"

    def _begin(self, root: ir.Expr) -> None:
        self._texts, self._names, self._lines = {}, set(), [[]]
        reads = (child for expr in post_order(root) for child in children(expr))
        self._readers = Counter(id(child) for child in reads)

    # Values ------------------------------------------------------------------------------

    def _operand(self, expr: Any, *, inline: bool = False) -> Writer:
        """A value where another one reads it: by name or number, or as it is."""
        if id(expr) in self._texts:
            return self._texts[id(expr)]
        writer = _WRITERS.get(type(expr))
        if writer is None:
            raise FrontendError(f"{expr!r} cannot be written as Relay text.")
        text: str = yield writer(self, expr)
        if isinstance(expr, _ALWAYS_INLINE) or (inline and self._readers[id(expr)] <= 1):
            return text
        name = f"%{self._counter}"
        self._counter += 1
        self._lines[-1].append(f"{name} = {text};")
        self._texts[id(expr)] = name
        return name

    def _block(self, root: ir.Expr, *, opened: bool = False) -> Generator[Any, Any, list[str]]:
        """The lines of a block; `opened` where a shared `let` is written now."""
        self._lines.append([])
        expr = root
        while isinstance(expr, ir.Let) and (
            self._readers[id(expr)] <= 1 or (opened and expr is root)
        ):
            name = self._bound(expr.var)
            value = yield self._operand(expr.value, inline=True)
            self._lines[-1].append(f"let {name} = {value};")
            expr = expr.body
        last = yield self._operand(expr, inline=True)
        return [*self._lines.pop(), last]

    def _braces(self, expr: ir.Expr) -> Writer:
        lines = yield self._block(expr)
        return _enclosed("{", lines, "}")

    def _call(self, call: ir.Call) -> Writer:
        words: list[str] = []
        for arg in call.args:
            words += [(yield self._operand(arg))]
        words += self._attributes(_written(call))
        function = yield self._operand(call.op)
        return f"{function}({', '.join(words)})"

    def _tuple(self, value: ir.Tuple) -> Writer:
        fields: list[str] = []
        for field in value.fields:
            fields += [(yield self._operand(field))]
        return _in_parentheses(fields)

    def _projection(self, item: ir.TupleGetItem) -> Writer:
        value = yield self._operand(item.tuple_value)
        return f"{value}.{item.index}"

    def _if(self, choice: ir.If) -> Writer:
        condition = yield self._operand(choice.cond)
        then = yield self._braces(choice.true_branch)
        otherwise = yield self._braces(choice.false_branch)
        return f"if ({condition}) {then} else {otherwise}"

    def _let(self, let: ir.Let) -> Writer:
        lines = yield self._block(let, opened=True)
        return _enclosed("(", lines, ")")

    def _literal_function(self, function: ir.Function) -> Writer:
        text = yield self._function("fn ", function)
        return text  # type: ignore[no-any-return]

    def _function(self, head: str, function: ir.Function) -> Writer:
        if function.type_params:
            raise FrontendError("A function with type parameters cannot be written.")
        inputs = [self._bound(param) for param in function.params]
        inputs += self._attributes(function.attrs)
        result = "" if function.ret_type is None else f"-> {type_text(function.ret_type)} "
        body = yield self._braces(function.body)
        return f"{head}({', '.join(inputs)}) {result}{body}"

    # Names and constants -----------------------------------------------------------------

    def _bound(self, var: ir.Var) -> str:
        """A variable where it is bound."""
        self._texts[id(var)] = f"%{_quoted(self._unique(var.name_hint))}"
        kind = "" if var.type_annotation is None else f": {type_text(var.type_annotation)}"
        return f"{self._texts[id(var)]}{kind}"

    def _unique(self, hint: str) -> str:
        base = hint or "v"
        name, count = base, 0
        while name in self._names:
            count += 1
            name = f"{base}{count}"
        self._names.add(name)
        return name

    def _free(self, var: ir.Var) -> Writer:
        self._lines[-1].append(f"free_var {self._bound(var)};")
        return self._texts[id(var)]
        yield

    def _global(self, name: ir.GlobalVar) -> Writer:
        return f"@{_quoted(name.name_hint)}"
        yield

    def _operator(self, op: ir.Op) -> Writer:
        return op.name
        yield

    def _constant(self, constant: ir.Constant) -> Writer:
        return write_scalar(constant.data) or self._meta(constant)
        yield

    def _meta(self, constant: ir.Constant) -> str:
        place = self._places.setdefault(id(constant), len(self.constants))
        if place == len(self.constants):
            self.constants.append(constant)
        return f"meta[{CONSTANT}][{place}]"

    # Attributes --------------------------------------------------------------------------

    def _attributes(self, attrs: Mapping[str, Any]) -> list[str]:
        return [f"{name}={self._value(name, value)}" for name, value in attrs.items()]

    def _value(self, name: str, value: Any) -> str:
        if value is None:
            return "None"
        if isinstance(value, bool | int | float | np.generic):
            return write_number(value)
        if isinstance(value, str | tvm.DataType):
            return write_string(str(value))
        if isinstance(value, AnyDimension):
            return "?"
        if isinstance(value, ir.Constant):
            return self._meta(value)
        if isinstance(value, tuple | list | np.ndarray):
            return f"[{', '.join(self._value(name, item) for item in value)}]"
        raise FrontendError(
            f"The attribute '{name}' is a {type(value).__name__}; Relay texts have numbers, "
            "strings, lists and constants."
        )


_WRITERS: dict[type, Callable[[_Printer, Any], Writer]] = {
    ir.Call: _Printer._call,
    ir.Constant: _Printer._constant,
    ir.Function: _Printer._literal_function,
    ir.GlobalVar: _Printer._global,
    ir.If: _Printer._if,
    ir.Let: _Printer._let,
    ir.Op: _Printer._operator,
    ir.Tuple: _Printer._tuple,
    ir.TupleGetItem: _Printer._projection,
    ir.Var: _Printer._free,
}
_ALWAYS_INLINE = (ir.Constant, ir.GlobalVar, ir.Op, ir.Var)


def _run(writer: Generator[Any, Any, Any]) -> Any:
    """What a writer returns; its parts are written on a stack of our own."""
    stack, value = [writer], None
    while stack:
        done, value = _resume(stack[-1], value)
        if done:
            stack.pop()
        else:
            stack.append(value)
            value = None
    return value


def _resume(writer: Generator[Any, Any, Any], value: Any) -> tuple[bool, Any]:
    """Whether a writer is done, with its result or else the part that it waits for."""
    try:
        return False, writer.send(value)
    except StopIteration as stop:
        return True, stop.value


def _written(call: ir.Call) -> dict[str, Any]:
    """The attributes that a reader does not know by himself."""
    known = left_out(call.op.name) if isinstance(call.op, ir.Op) else {}
    return {
        name: value
        for name, value in all_attributes(call).items()
        if name not in known or not same_value(known[name], value)
    }


def _enclosed(start: str, lines: list[str], end: str) -> str:
    inner = "\n".join(lines).replace("\n", f"\n{_INDENT}")
    return f"{start}\n{_INDENT}{inner}\n{end}"


def _in_parentheses(fields: list[str]) -> str:
    return f"({fields[0]},)" if len(fields) == 1 else f"({', '.join(fields)})"


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else write_string(name)
