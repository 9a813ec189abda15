"""Types of Relay expressions: tensors, tuples and functions, compared by value.

>>> TensorType((1, 3), "float32") == TensorType([1, 3])
True
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tvm_quant.errors import FrontendError


class Any:
    """A dimension that is known when the network runs. Each use is a dimension of its own."""

    def __repr__(self) -> str:
        return "?"


Dimension: TypeAlias = int | Any


@dataclass(frozen=True)
class TensorType:
    """A tensor.

    Attributes:
        shape: dimensions, >= 0 or `Any`; () is a scalar.
        dtype: as TVM spells it, such as float32, int8, bool.
    """

    shape: tuple[Dimension, ...]
    dtype: str = "float32"

    def __post_init__(self) -> None:
        dims = tuple(dim if isinstance(dim, Any) else int(dim) for dim in self.shape)
        if any(not isinstance(dim, Any) and dim < 0 for dim in dims):
            raise FrontendError(f"TensorType: the shape is {dims}; dimensions are not negative.")
        object.__setattr__(self, "shape", dims)
        object.__setattr__(self, "dtype", str(self.dtype))


@dataclass(frozen=True)
class TupleType:
    """A tuple of values; no fields is the unit type."""

    fields: tuple[Type, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.fields))


@dataclass(frozen=True)
class TypeVar:
    """A name for a type that a function takes as a parameter."""

    name: str


@dataclass(frozen=True)
class FuncType:
    """A function."""

    arg_types: tuple[Type, ...]
    ret_type: Type
    type_params: tuple[TypeVar, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "arg_types", tuple(self.arg_types))
        object.__setattr__(self, "type_params", tuple(self.type_params))


Type: TypeAlias = TensorType | TupleType | FuncType | TypeVar
