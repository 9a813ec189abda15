"""Relay expressions: plain immutable objects, compared by identity.

A network is a graph: where two expressions read the same object, it is computed once. Nothing here
knows what an operator means; `tvm_relay.op` holds that, and `tvm_relay.to_relax` makes a Relax
module of the graph.

>>> x = var("x", shape=(1, 4))
>>> y = Call(Op("nn.relu"), (x + const(1.0),))
>>> y.op.name, y.args[0].op.name, y.args[0].args[0] is x
('nn.relu', 'add', True)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
from tvm import relax
from tvm.runtime import Tensor

from tvm_quant.errors import FrontendError
from tvm_relay.ty import TensorType, Type

#: Plain Python numbers become constants where they stand beside an expression.
Scalar: TypeAlias = float | int | bool | np.generic


class Attrs(Mapping[str, Any]):
    """Attributes of a call or function, read as fields or as a mapping; equal by value.

    >>> Attrs(strides=(1, 1)).strides
    (1, 1)
    """

    def __init__(self, **values: Any):
        self._values = values

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][name]
        except KeyError:
            raise AttributeError(f"no attribute '{name}'") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and self._values == dict(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Attrs({', '.join(f'{k}={v!r}' for k, v in self._values.items())})"


class Expr:
    """Base of all expressions; arithmetic between them makes calls."""

    def __add__(self, other: Expr | Scalar) -> Call:
        return _binary("add", self, other)

    def __radd__(self, other: Scalar) -> Call:
        return _binary("add", other, self)

    def __sub__(self, other: Expr | Scalar) -> Call:
        return _binary("subtract", self, other)

    def __rsub__(self, other: Scalar) -> Call:
        return _binary("subtract", other, self)

    def __mul__(self, other: Expr | Scalar) -> Call:
        return _binary("multiply", self, other)

    def __rmul__(self, other: Scalar) -> Call:
        return _binary("multiply", other, self)

    def __truediv__(self, other: Expr | Scalar) -> Call:
        return _binary("divide", self, other)

    def __rtruediv__(self, other: Scalar) -> Call:
        return _binary("divide", other, self)

    def __neg__(self) -> Call:
        return Call(Op("negative"), (self,))

    def __lt__(self, other: Expr | Scalar) -> Call:
        return _binary("less", self, other)

    def __gt__(self, other: Expr | Scalar) -> Call:
        return _binary("greater", self, other)

    def __le__(self, other: Expr | Scalar) -> Call:
        return _binary("less_equal", self, other)

    def __ge__(self, other: Expr | Scalar) -> Call:
        return _binary("greater_equal", self, other)

    def astype(self, dtype: str) -> Call:
        """The value in another dtype: `cast`."""
        return Call(Op("cast"), (self,), Attrs(dtype=str(dtype)))

    def __call__(self, *args: Expr) -> Call:
        """A call of this value, which has to be a function."""
        return Call(self, args)

    def astext(self, show_meta_data: bool = True) -> str:
        """The expression as text: see `tvm_relay.text.astext`."""
        from tvm_relay.text.printer import astext

        return astext(self, show_meta_data)

    def __repr__(self) -> str:
        return f"<relay.{type(self).__name__}>"


@dataclass(frozen=True, eq=False, repr=False)
class Var(Expr):
    """A variable: a parameter of a function, or bound by `Let`."""

    name_hint: str
    type_annotation: Type | None = None

    def __repr__(self) -> str:
        return f"%{self.name_hint}"


@dataclass(frozen=True, eq=False, repr=False)
class GlobalVar(Expr):
    """The name of a function of a `Module`."""

    name_hint: str

    def __repr__(self) -> str:
        return f"@{self.name_hint}"


@dataclass(frozen=True, eq=False, repr=False)
class Constant(Expr):
    """A constant tensor.

    Attributes:
        data: any shape; () is a scalar. Its dtype is that of the tensor.
    """

    data: npt.NDArray[Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", as_array(self.data))

    @property
    def type(self) -> TensorType:
        """Shape and dtype of the data."""
        return TensorType(self.data.shape, str(self.data.dtype))


@dataclass(frozen=True, eq=False, repr=False)
class Op(Expr):
    """An operator, by its Relay name; `Op(name)` is one object a name."""

    name: str
    _known: ClassVar[dict[str, Op]] = {}

    def __new__(cls, name: str) -> Op:
        """The object of that name."""
        return cls._known.setdefault(name, super().__new__(cls))

    def __reduce__(self) -> tuple[type[Op], tuple[str]]:
        return Op, (self.name,)

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False, repr=False)
class Call(Expr):
    """An operator or function, applied.

    Attributes:
        op: an `Op`, or an expression that is a function: `GlobalVar`, `Function`, `Var`.
        args: operands.
        attrs: every attribute of the operator, defaults included, where `tvm_relay.op` made the
            call; attributes that are not there have the default of the operator's row.
    """

    op: Expr
    args: tuple[Expr, ...]
    attrs: Attrs = field(default_factory=Attrs)

    def __post_init__(self) -> None:
        object.__setattr__(self, "args", tuple(_checked(arg, self.op) for arg in self.args))
        if not isinstance(self.attrs, Attrs):
            object.__setattr__(self, "attrs", Attrs(**(self.attrs or {})))

    def __repr__(self) -> str:
        return f"<relay.Call {self.op!r}>"


@dataclass(frozen=True, eq=False, repr=False)
class Tuple(Expr):
    """Several values as one."""

    fields: tuple[Expr, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(_checked(item, self) for item in self.fields))

    def __getitem__(self, index: int) -> Expr:
        return self.fields[index]

    def __len__(self) -> int:
        return len(self.fields)


@dataclass(frozen=True, eq=False, repr=False)
class TupleGetItem(Expr):
    """A field of a tuple, by its index from 0."""

    tuple_value: Expr
    index: int


@dataclass(frozen=True, eq=False, repr=False)
class Let(Expr):
    """`var` is `value` in `body`."""

    var: Var
    value: Expr
    body: Expr


@dataclass(frozen=True, eq=False, repr=False)
class If(Expr):
    """One of two values, by a scalar of type bool; only the chosen one is computed."""

    cond: Expr
    true_branch: Expr
    false_branch: Expr


@dataclass(frozen=True, eq=False, repr=False)
class Function(Expr):
    """A function of `params`, whose body may read variables from outside as well.

    Attributes:
        ret_type: of the body; None leaves it to inference.
        attrs: such as `Primitive` or `Composite` of functions that another tool cut out.
    """

    params: tuple[Var, ...]
    body: Expr
    ret_type: Type | None = None
    type_params: tuple[Type, ...] = ()
    attrs: Attrs = field(default_factory=Attrs)

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", tuple(self.params))
        object.__setattr__(self, "type_params", tuple(self.type_params or ()))
        if not isinstance(self.attrs, Attrs):
            object.__setattr__(self, "attrs", Attrs(**(self.attrs or {})))
        _check_parameters(self.params)

    def with_attr(self, name: str, value: Any) -> Function:
        """A copy with one attribute more."""
        attrs = Attrs(**{**self.attrs, name: value})
        return Function(self.params, self.body, self.ret_type, self.type_params, attrs)


@dataclass(frozen=True, eq=False)
class TupleWrapper:
    """What an operator with several results returns: unpacks, and stands for the tuple itself."""

    tuple_value: Expr
    size: int

    def astuple(self) -> Tuple:
        """The fields as a literal tuple."""
        return Tuple(tuple(self))

    def __getitem__(self, index: int) -> TupleGetItem:
        if not -self.size <= index < self.size:
            raise IndexError(f"the tuple has {self.size} fields, index {index} is none of them")
        return TupleGetItem(self.tuple_value, index % self.size)

    def __iter__(self) -> Iterator[TupleGetItem]:
        return (self[index] for index in range(self.size))

    def __len__(self) -> int:
        return self.size


def var(
    name_hint: str,
    type_annotation: Type | None = None,
    shape: tuple[Any, ...] | None = None,
    dtype: str = "float32",
) -> Var:
    """A variable with a type, or with the shape and dtype of a tensor, or with none yet.

    Raises:
        FrontendError: a type as well as a shape.
    """
    if type_annotation is not None and shape is not None:
        raise FrontendError(f"var '{name_hint}': give a type or a shape, not both.")
    if isinstance(type_annotation, tuple | list):
        type_annotation = TensorType(tuple(type_annotation), dtype)
    if shape is not None:
        type_annotation = TensorType(tuple(shape), dtype)
    return Var(name_hint, type_annotation)


def const(value: npt.ArrayLike, dtype: str | None = None) -> Constant:
    """A constant; Python numbers and 64-bit lists become float32 and int32 without a dtype.

    >>> const(1).type, const([0.5]).type.dtype
    (TensorType(shape=(), dtype='int32'), 'float32')
    """
    if dtype is not None:
        return Constant(np.asarray(as_array(value), dtype))
    if isinstance(value, np.ndarray | np.generic | Tensor):
        return Constant(as_array(value))
    array = np.asarray(value)
    narrow = {"float64": "float32", "int64": "int32"}
    return Constant(array.astype(narrow.get(str(array.dtype), array.dtype)))


def as_array(value: Any) -> npt.NDArray[Any]:
    """The array of a TVM tensor, an array or anything NumPy makes one of.

    Raises:
        FrontendError: no array of numbers.
    """
    array = np.asarray(value.numpy() if isinstance(value, Tensor) else value)
    if array.dtype == object:
        raise FrontendError(f"A constant of type {type(value).__name__}; expected an array.")
    return array


def as_expr(value: Any) -> Expr:
    """An operand as an expression: wrapped tuples unwrap, lists are tuples, numbers constants.

    A Relax expression is an operand too: the network that a front door returned continues in Relay.

    Raises:
        FrontendError: none of those.
    """
    if isinstance(value, TupleWrapper):
        return value.tuple_value
    if isinstance(value, Expr | relax.Expr):
        return value
    if isinstance(value, tuple | list):
        return Tuple(tuple(as_expr(item) for item in value))
    if isinstance(value, Scalar | np.ndarray | Tensor):
        return const(value)
    raise FrontendError(f"An operand is a {type(value).__name__}; expected a Relay expression.")


def _binary(name: str, left: Any, right: Any) -> Call:
    return Call(Op(name), (left, right))


def _checked(value: Any, where: Expr) -> Expr:
    try:
        return as_expr(value)
    except FrontendError as error:
        raise FrontendError(f"{where!r}: {error}") from None


def _check_parameters(params: tuple[Any, ...]) -> None:
    for param in params:
        if not isinstance(param, Var | relax.Var):
            raise FrontendError(
                f"A parameter of a function is {param!r}; expected a variable, as relay.var makes."
            )
