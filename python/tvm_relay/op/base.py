"""One row an operator: the row is the function that makes Relax of it.

    @relay_op("clip")
    def clip(a, /, a_min, a_max):
        return relax.op.clip(a, a_min, a_max)

Parameters before the slash are operands, Relax expressions with a type; those behind it attributes
with the defaults of the old documentation, in its order. The public function `relay.clip`, the text
parser and the converter all read that signature. A new operator is one such function.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax

from tvm_quant.errors import FrontendError, UnsupportedError
from tvm_quant.ir import constant_value
from tvm_relay.expr import Attrs, Call, Expr, Op, TupleWrapper, as_expr

#: What a required attribute has instead of a default.
REQUIRED = inspect.Parameter.empty

_POSITIONAL = inspect.Parameter.POSITIONAL_ONLY
_EITHER = inspect.Parameter.POSITIONAL_OR_KEYWORD


@dataclass(frozen=True, kw_only=True)
class OpRow:
    """One operator.

    Attributes:
        name: in Relay.
        build: makes the Relax expression: (operands..., **attributes).
        order: parameters of the public function, where they are not operands and then attributes.
        fields: number of results of a call that gives a tuple, from its attributes; None for one
            result that is no tuple.
        first: whether the public function returns the first field alone.
        weights: shapes of operands from the shapes of the others and the attributes, for variables
            that have no type: {operand: shape}.
    """

    name: str
    build: Callable[..., relax.Expr]
    order: tuple[str, ...] = ()
    fields: Callable[[Attrs], int | None] = lambda _attrs: None
    first: bool = False
    weights: Callable[..., Mapping[str, Sequence[Any]]] | None = None

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """Operands and attributes."""
        return inspect.signature(self.build).parameters

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of the operands, in order."""
        return tuple(n for n, p in self.parameters.items() if p.kind is _POSITIONAL)

    @property
    def attributes(self) -> dict[str, Any]:
        """Default of each attribute, in order; `REQUIRED` where there is none."""
        return {n: p.default for n, p in self.parameters.items() if p.kind is not _POSITIONAL}

    def complete(self, attrs: Mapping[str, Any]) -> Attrs:
        """All attributes, with defaults where none are given.

        Raises:
            FrontendError: an attribute that the operator does not have, or a required one missing.
        """
        unknown = sorted(set(attrs) - set(self.attributes))
        values = {**self.attributes, **attrs}
        missing = sorted(name for name, value in values.items() if value is REQUIRED)
        if unknown or missing:
            raise FrontendError(
                f"{self.name}: unknown attributes {unknown}, missing {missing}; the operator has "
                f"{sorted(self.attributes)}."
            )
        return Attrs(**values)

    def signature(self) -> inspect.Signature:
        """Of the public function."""
        names = self.order or tuple(self.parameters)
        return inspect.Signature(
            [
                self.parameters[name].replace(kind=_EITHER, annotation=inspect.Parameter.empty)
                for name in names
            ]
        )

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """A Relay call of the operator, by the arguments of the public function.

        Raises:
            TypeError: an argument too many, too few, or of an unknown name.
        """
        kwargs.pop("span", None)
        try:
            bound = self.signature().bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}{self.signature()}: {error}") from None
        bound.apply_defaults()
        operands = [_operand(self.name, bound.arguments[name]) for name in self.operands]
        attrs = self.complete({name: bound.arguments[name] for name in self.attributes})
        return self.wrap(Call(Op(self.name), tuple(operands), attrs))

    def wrap(self, call: Call) -> Any:
        """A call, unpacking where it has several results."""
        fields = self.fields(call.attrs)
        if fields is None:
            return call
        wrapper = TupleWrapper(call, fields)
        return wrapper[0] if self.first else wrapper


#: Relay name: row. Filled by `relay_op`.
OPS: dict[str, OpRow] = {}

Build = Callable[..., relax.Expr]


def relay_op(name: str, **settings: Any) -> Callable[[Build], Build]:
    """Enter a function into the table; settings are fields of `OpRow`."""

    def enter(build: Build) -> Build:
        assert name not in OPS, f"{name} stands in the table twice"
        OPS[name] = OpRow(name=name, build=build, **settings)
        return build

    return enter


def row(name: str) -> OpRow:
    """The row of an operator.

    Raises:
        FrontendError: nobody converts it; the message has names that look like it.
    """
    if name in OPS:
        return OPS[name]
    near = difflib.get_close_matches(name, OPS, 3)
    hint = f" Similar are {near}." if near else ""
    raise FrontendError(f"No conversion of the Relay operator '{name}'.{hint}")


def _operand(name: str, value: Any) -> Expr:
    try:
        return as_expr(value)
    except FrontendError as error:
        raise FrontendError(f"{name}: {error}") from None


# What builders use ---------------------------------------------------------------------------


def emit(expr: relax.Expr) -> relax.Var:
    """Bind an intermediate result, so that it has a type."""
    return relax.BlockBuilder.current().emit(expr)


def shape(value: relax.Expr) -> tuple[Any, ...]:
    """Dimensions: numbers where they are known, symbolic expressions elsewhere.

    Raises:
        UnsupportedError: not even the rank is known.
    """
    known = getattr(value.ty, "shape", None)
    if known is None:
        raise UnsupportedError(f"The shape of {value} is not known when the network is converted.")
    dims = known.values if hasattr(known, "values") else known
    return tuple(int(dim) if hasattr(dim, "value") else dim for dim in dims)


def rank(value: relax.Expr) -> int:
    """Number of dimensions."""
    return len(shape(value))


def dtype(value: relax.Expr) -> str:
    """As TVM spells it."""
    return str(value.ty.dtype)


def scalar(value: Any, like: relax.Expr) -> relax.Expr:
    """A constant of rank 0 and of the dtype of a tensor."""
    return relax.const(value, dtype(like))


def number(value: relax.Expr, what: str) -> Any:
    """The value of a constant operand as an array.

    Raises:
        UnsupportedError: it is computed.
    """
    array = constant_value(value)
    if array is None:
        raise UnsupportedError(f"{what} is computed by the network; expected a constant.")
    return array


def or_none(text: Any) -> Any:
    """Relay's spelling of "as the operand" is empty text; Relax says None."""
    return text or None


def axes_of(axis: Any, ndim: int) -> list[int]:
    """Axes from 0, sorted; None and () are all.

    >>> axes_of(-1, 4), axes_of(None, 2)
    ([3], [0, 1])
    """
    if axis is None or (not isinstance(axis, int) and len(axis) == 0):
        return list(range(ndim))
    chosen = [axis] if isinstance(axis, int) else axis
    return sorted(int(a) % ndim for a in chosen)
