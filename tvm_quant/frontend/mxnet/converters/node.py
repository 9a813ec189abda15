"""What a converter gets to see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from tvm import relax

from tvm_quant.frontend.mxnet.attributes import Attributes
from tvm_quant.frontend.mxnet.converters.grids import Grids
from tvm_quant.ir import constant, constant_value, tensor_shape


@dataclass(frozen=True)
class Node:
    """An MXNet node while it is imported.

    Attributes:
        inputs: its operands; None stands for the range of a tensor of codes.
        grids: those of the tensors that are quantized.
    """

    builder: relax.BlockBuilder
    name: str
    attributes: Attributes
    inputs: Sequence[relax.Expr | None]
    grids: Grids

    @property
    def data(self) -> relax.Expr:
        """The first operand."""
        return self.operand(0)

    @property
    def dtype(self) -> str:
        """Type of the first operand."""
        return str(self.data.ty.dtype)

    def operand(self, index: int) -> relax.Expr:
        """An operand that the operator must have."""
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is None:
            raise ValueError(f"its input {index} is missing, or the range of a quantized tensor")
        return value

    def operands(self) -> list[relax.Expr]:
        """All operands."""
        return [self.operand(index) for index in range(len(self.inputs))]

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """Shape of an operand."""
        shape = tensor_shape(self.operand(index))
        if shape is None or None in shape:
            raise ValueError(f"the shape of its input {index} is unknown")
        return tuple(int(size) for size in shape if size is not None)

    def rank(self) -> int:
        """Number of axes of the first operand."""
        return len(self.shape())

    def axis(self, name: str = "axis", default: int = 1) -> int:
        """An axis of the first operand, counted from the front."""
        axis = self.attributes.integer(name, default)
        if not -self.rank() <= axis < self.rank():
            raise ValueError(f"its axis is {axis}, but the data has {self.rank()} axes")
        return axis % self.rank()

    def per_axis(self, name: str, rank: int, missing: int) -> list[int]:
        """An attribute of windows: a number for each of `rank` axes."""
        found = list(self.attributes.sizes(name, ())) or [missing] * rank
        if len(found) != rank:
            raise ValueError(f"its attribute '{name}' is {tuple(found)}; expected {rank} numbers")
        return found

    def known(self, index: int, what: str) -> npt.NDArray[np.generic]:
        """The value of an operand that has to be a parameter."""
        value = constant_value(self.operand(index))
        if value is None:
            raise ValueError(f"its {what} is computed at run time; only parameters are supported")
        return value

    def scalar(self, value: float) -> relax.Expr:
        """A number of the type of the data."""
        return constant(np.asarray(value, self.dtype))

    def emit(self, value: relax.Expr) -> relax.Var:
        """A variable for an intermediate result."""
        return self.builder.emit(value)


#: One result, or several; None among them stands for the range of a tensor of codes.
Results: TypeAlias = relax.Expr | list[relax.Expr | None]
Converter = Callable[[Node], Results]
