"""Interval arithmetic: no sum leaves int32, no stored value int8."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.backend.vta.config import Memory
from tvm_quant.backend.vta.isa import Alu, AluOp, Gemm, Load
from tvm_quant.backend.vta.loops import Indices, products
from tvm_quant.backend.vta.program import Program
from tvm_quant.errors import ProgramError

Array = npt.NDArray[Any]
Bounds = tuple[Array, Array]

INT32, INT8 = np.iinfo(np.int32), np.iinfo(np.int8)
LARGEST_TENSOR_SHIFT = 15


class Intervals:
    """Smallest and largest value: of each lane of a sum, of each input element.

    Args:
        program: its constants are known, its inputs are any int8.
        unit: bytes of DRAM that have an interval.
    """

    def __init__(self, program: Program, unit: int):
        config = program.config
        self._program, self._config, self._unit = program, config, unit
        lanes, depth = config.block, config.depth
        self._acc = np.zeros((2, depth(Memory.ACC), lanes), np.int64)
        self._inp = np.zeros((2, depth(Memory.INP)), np.int64)
        # Per weight element and output lane, the sum of the positive and of the negative weights.
        self._wgt = np.zeros((2, depth(Memory.WGT), lanes), np.int64)
        self._dram = np.empty((2, -(-len(program.image) // unit)), np.int64)
        self._dram[0], self._dram[1] = INT8.min, INT8.max

    def load(self, load: Load, places: Array, starts: Array) -> None:
        """Elements that start at these bytes of the image go to these places, padded."""
        rows, columns = load.extent
        inner = places.reshape(rows, columns)[load.y_pad_0 :, load.x_pad_0 :]
        inner = inner[: load.y_size, : load.x_size].ravel()
        memory = Memory(load.memory_type)
        if memory is Memory.INP:
            self._inp[:, places] = 0
            self._inp[:, inner] = self._dram[:, starts // self._unit]
        elif memory is Memory.WGT:
            raw = self._raw(memory, starts).view(np.int8)
            block = self._config.block
            weights = raw.reshape(-1, block, block).astype(np.int64)
            self._wgt[:, places] = 0
            self._wgt[0][inner] = np.maximum(weights, 0).sum(axis=2)
            self._wgt[1][inner] = np.minimum(weights, 0).sum(axis=2)
        elif memory is Memory.ACC:
            raw = self._raw(memory, starts).view(np.int32)
            values = raw.reshape(-1, self._config.batch, self._config.block)
            self._acc[:, places] = 0
            self._acc[0][inner], self._acc[1][inner] = values.min(axis=1), values.max(axis=1)
        elif memory is Memory.ACC_8BIT:
            self._acc[:, places] = 0
            self._acc[:, inner] = self._dram[:, starts // self._unit][:, :, None]

    def _raw(self, memory: Memory, starts: Array) -> Array:
        size = self._config.element_bytes(memory)
        return np.asarray(self._program.image[starts[:, None] + np.arange(size)])

    def store(self, places: Array, starts: Array) -> None:
        """Sums at these places go to elements that start at these bytes."""
        low, high = self._acc[0][places].min(axis=1), self._acc[1][places].max(axis=1)
        wrong = (low < INT8.min) | (high > INT8.max)
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            raise ProgramError(
                f"stores ACC {places[first]}, which can be {low[first]} to {high[first]}, expected "
                "int8: a clip is missing"
            )
        self._dram[0][starts // self._unit], self._dram[1][starts // self._unit] = low, high

    def loop(self, loop: Gemm | Alu, found: Indices) -> None:
        """A GEMM or ALU instruction."""
        if isinstance(loop, Alu):
            self._alu(loop, found)
        elif loop.reset_reg:
            self._acc[:, found.dst] = 0
        else:
            self._gemm(found)
        self._check(found.dst)

    def _gemm(self, found: Indices) -> None:
        low, high = self._inp[0][found.src].min(), self._inp[1][found.src].max()
        positive, negative = self._wgt
        for product in products(found):
            up = positive[product.wgt].sum(axis=0)
            down = negative[product.wgt].sum(axis=0)
            self._acc[0][product.dst] += low * up + high * down
            self._acc[1][product.dst] += high * up + low * down

    def _alu(self, alu: Alu, found: Indices) -> None:
        if not found.distinct or (not alu.use_imm and np.intersect1d(found.dst, found.src).size):
            raise ProgramError("uses sums that it also writes, of which no bound is known")
        own = self._acc[0][found.dst], self._acc[1][found.dst]
        imm = np.array(alu.imm, np.int64)
        other = (imm, imm) if alu.use_imm else (self._acc[0][found.src], self._acc[1][found.src])
        low, high = _OPERATIONS[AluOp(alu.alu_opcode)](own, other)
        self._acc[0][found.dst], self._acc[1][found.dst] = low, high
        if alu.alu_opcode == AluOp.SHR and not alu.use_imm and not self._program.extended:
            _check_counts(other)

    def _check(self, dst: Array) -> None:
        low, high = self._acc[0][dst].min(), self._acc[1][dst].max()
        if low < INT32.min or high > INT32.max:
            raise ProgramError(f"sums can reach {low} to {high}, expected int32")


def _check_counts(counts: Bounds) -> None:
    if counts[0].min() < 0 or counts[1].max() > LARGEST_TENSOR_SHIFT:
        raise ProgramError(
            f"shifts by sums of {counts[0].min()} to {counts[1].max()}, expected 0 to "
            f"{LARGEST_TENSOR_SHIFT}"
        )


def _ends(operate: Callable[[Any, Any], Array]) -> Callable[[Bounds, Bounds], Bounds]:
    """Of an operation that is monotone in each operand: its extremes are at the ends."""

    def bounds(own: Bounds, other: Bounds) -> Bounds:
        corners = [operate(left, right) for left in own for right in other]
        return np.minimum.reduce(corners), np.maximum.reduce(corners)

    return bounds


def _shift(values: Array, counts: Any) -> Array:
    right, left = np.clip(counts, 0, 31), np.clip(-counts, 0, 31)
    return np.asarray((values >> right) << left)


_OPERATIONS: dict[AluOp, Callable[[Bounds, Bounds], Bounds]] = {
    AluOp.MIN: _ends(np.minimum),
    AluOp.MAX: _ends(np.maximum),
    AluOp.ADD: _ends(np.add),
    AluOp.SHR: _ends(_shift),
    AluOp.MUL: _ends(np.multiply),
}
