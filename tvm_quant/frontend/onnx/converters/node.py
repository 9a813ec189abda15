"""What a converter gets to see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
from tvm import relax

from tvm_quant.ir import constant_value, tensor_shape


@dataclass(frozen=True)
class Node:
    """An ONNX node while it is imported; operands are Relax, attributes Python values."""

    builder: relax.BlockBuilder
    inputs: list[relax.Expr | None]
    attributes: dict[str, Any]
    opset: int
    outputs: int

    @property
    def data(self) -> relax.Expr:
        """The first operand, which every operator converted here must have."""
        if not self.inputs or self.inputs[0] is None:
            raise ValueError("the first input is missing")
        return self.inputs[0]

    def input(self, index: int) -> relax.Expr | None:
        """An operand, or None where the node leaves it out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def constant(self, index: int) -> npt.NDArray[Any] | None:
        """The value of a constant operand, or None."""
        value = self.input(index)
        return None if value is None else constant_value(value)

    def is_computed(self, index: int) -> bool:
        """Whether the operand is given, but not as a constant."""
        return self.input(index) is not None and self.constant(index) is None

    def shape(self, index: int = 0) -> tuple[int | None, ...]:
        """Shape of an operand of known rank, with None for open dimensions."""
        value = self.input(index)
        shape = tensor_shape(value) if value is not None else None
        if shape is None:
            raise ValueError(f"the rank of operand {index} is unknown")
        return shape

    def spatial_rank(self) -> int:
        """Number of dimensions behind batch and channel."""
        return len(self.shape()) - 2


Converter = Callable[[Node], relax.Expr | None]
