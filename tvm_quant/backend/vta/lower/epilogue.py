"""What happens to a sum after the products: bias, shift, clip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.backend.vta.config import Memory
from tvm_quant.backend.vta.isa import AluOp
from tvm_quant.backend.vta.layer import INT8_HIGH, INT8_LOW
from tvm_quant.backend.vta.layout import blocks
from tvm_quant.backend.vta.program import Builder, Place

Array = npt.NDArray[Any]

PORTABLE_SHIFT = 15
IMMEDIATE = 1 << 15


@dataclass(frozen=True)
class Operation:
    """An ALU operation with an immediate, or with a constant per channel, int32 (O,)."""

    op: AluOp
    operand: int | Array

    @property
    def cycles(self) -> int:
        """Per sum."""
        return 1 if isinstance(self.operand, int) else 2


def operations(
    bias: Array, shift: Array, low: int, high: int, *, extended: bool
) -> tuple[Operation, ...]:
    """Operations of `clip((sum + bias) shifted, low, high)`; rounding is folded into the bias.

    Args:
        bias: int64 (O,); shift: (O,), positive is right.
    """
    right, left = np.maximum(shift, 0), np.maximum(-shift, 0)
    half = np.where(right > 0, 1 << np.maximum(right - 1, 0).astype(np.int64), 0)
    found = _operation(AluOp.ADD, bias + half)
    found += _shifts(right, 1, extended=extended)
    if left.any():
        most = int(left.max())
        if (left != most).any():
            # Beyond int8 a left shift changes nothing but the excess: clipped, it cannot overflow.
            found += [Operation(AluOp.MAX, INT8_LOW), Operation(AluOp.MIN, INT8_HIGH)]
        found += _shifts(np.full_like(left, most), -1, extended=extended)
        found += _shifts(most - left, 1, extended=extended)
    return (*found, Operation(AluOp.MAX, low), Operation(AluOp.MIN, high))


def left_shift(count: int, *, extended: bool) -> tuple[Operation, ...]:
    """Operations that shift all sums left."""
    return tuple(_shifts(np.array([count]), -1, extended=extended))


def _shifts(counts: Array, sign: int, *, extended: bool) -> list[Operation]:
    """Long shifts go in steps: floor composes."""
    largest = 31 if extended else PORTABLE_SHIFT
    found: list[Operation] = []
    while counts.any():
        step = np.minimum(counts, largest)
        found += _operation(AluOp.SHR, sign * step)
        counts = counts - step
    return found


def _operation(op: AluOp, values: Array) -> list[Operation]:
    first = int(values[0])
    if (values != first).any() or not -IMMEDIATE <= first < IMMEDIATE:
        return [Operation(op, values.astype(np.int32))]
    return [Operation(op, first)] if first else []


class Epilogue:
    """Operations with their constants in DRAM: ACC elements [channel block][constant].

    Args:
        builder: of the program.
        name: of the layer.
        steps: operations.
    """

    def __init__(self, builder: Builder, name: str, steps: tuple[Operation, ...]):
        self.operations = steps
        vectors = [step.operand for step in steps if not isinstance(step.operand, int)]
        self.vectors = len(vectors)
        self.cycles = sum(step.cycles for step in steps)
        self._builder = builder
        if vectors:
            values = _elements(builder, np.stack(vectors))
            self._place: Place = builder.constant(f"{name}: bias and shifts", values)

    def emit(self, acc: int, constants: int, first: int, planes: int, area: int) -> None:
        """Work on `planes` x `area` sums at `acc`, with the constants of blocks from `first`."""
        if self.vectors:
            count = planes * self.vectors
            dram = self._builder.address(self._place, Memory.ACC) + first * self.vectors
            self._builder.load(Memory.ACC, constants, dram, 1, count, count)
        vector = 0
        for step in self.operations:
            if isinstance(step.operand, int):
                self._builder.immediate(step.op, step.operand, acc, planes * area)
                continue
            source, factors = constants + vector, (self.vectors, 0)
            self._builder.alu(step.op, acc, source, planes, area, dst=(area, 1), src=factors)
            vector += 1


def _elements(builder: Builder, vectors: Array) -> Array:
    """int32 (block, vector, batch, lane) of (vector, channel)."""
    lanes, rows = builder.config.block, builder.config.batch
    count = blocks(vectors.shape[1], lanes)
    padded = np.zeros((len(vectors), count * lanes), np.int32)
    padded[:, : vectors.shape[1]] = vectors
    split = padded.reshape(len(vectors), count, 1, lanes).transpose(1, 0, 2, 3)
    return np.repeat(split, rows, axis=2)
