"""What a converter gets to see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt
from tvm import relax

from tvm_quant.ir import constant_value, tensor_shape
from tvm_quant.ir.names import identifier


@dataclass(frozen=True)
class Node:
    """An ONNX node while it is imported; operands are Relax, attributes Python values.

    Attributes:
        version: of the operator set of the node's own domain.
        bits: width of the integers of each operand, where it is less than the type that holds them.
        names: of the operands, for messages.
        sums: for each tensor of summed integers, the same in float.
        reasons: what to tell the user about calls that stay in float, by variable name.
        float_sums: whether convolutions add float32 products in ONNX Runtime's order.
    """

    builder: relax.BlockBuilder
    inputs: list[relax.Expr | None]
    attributes: dict[str, Any]
    opset: int
    outputs: int
    name: str = ""
    version: int = 1
    bits: tuple[int | None, ...] = ()
    names: tuple[str, ...] = ()
    reasons: dict[str, str] = field(default_factory=dict)
    sums: dict[relax.Expr, relax.Expr] = field(default_factory=dict)
    float_sums: bool = False

    @property
    def identifier(self) -> str:
        """Name of the variable that holds the node's result."""
        return identifier(self.name)

    @property
    def data(self) -> relax.Expr:
        """The first operand, which every operator converted here must have."""
        return self.required(0)

    def required(self, index: int) -> relax.Expr:
        """An operand that the operator must have."""
        value = self.input(index)
        if value is None:
            raise ValueError(f"{_ORDINALS.get(index, f'input {index}')} is missing")
        return value

    def input(self, index: int) -> relax.Expr | None:
        """An operand, or None where the node leaves it out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def constant(self, index: int) -> npt.NDArray[Any] | None:
        """The value of a constant operand, or None."""
        value = self.input(index)
        return None if value is None else constant_value(value)

    def known(self, index: int, what: str) -> npt.NDArray[Any]:
        """The value of an operand that has to be a constant; `what` says what it is."""
        value = self.constant(index)
        if value is not None:
            return value
        if self.input(index) is None:
            raise ValueError(f"its {what} (input {index}) is missing")
        raise ValueError(
            f"its {what} ('{self.operand_name(index)}') is computed at run time; only constants "
            "are supported. Fold the constants of the model first"
        )

    def operand_name(self, index: int) -> str:
        """What the model calls an operand."""
        return self.names[index] if index < len(self.names) else str(index)

    def width(self, index: int) -> int | None:
        """Bits of an operand's integers, where its type has more."""
        return self.bits[index] if index < len(self.bits) else None

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

    def emit(self, value: relax.Expr) -> relax.Var:
        """A variable for an intermediate result."""
        return self.builder.emit(value)


_ORDINALS = {0: "the first input", 1: "the second input", 2: "the third input"}

Converter = Callable[[Node], relax.Expr | None]
