"""Every read and write of a program: in range, of something written, and free of races.

Sums and values carry the interval that they can lie in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.backend.vta.config import Memory, VtaConfig
from tvm_quant.backend.vta.isa import (
    Alu,
    Gemm,
    Instruction,
    Load,
    Stage,
    Store,
    Transfer,
)
from tvm_quant.backend.vta.loops import Indices, indices
from tvm_quant.backend.vta.program import Place, Program
from tvm_quant.backend.vta.verify.clocks import Clock
from tvm_quant.backend.vta.verify.intervals import Intervals
from tvm_quant.errors import ProgramError

Array = npt.NDArray[Any]


class Shadow:
    """Of each element of a memory, which instruction of each stage last read and wrote it.

    Args:
        name: for messages.
        depth: elements.
    """

    def __init__(self, name: str, depth: int):
        self.name, self.depth = name, depth
        self.written = np.zeros(depth, bool)
        self.stored = np.zeros(depth, bool)  # last written by what reaches OUT
        self._reads = np.zeros((len(Stage), depth), np.int32)
        self._writes = np.zeros((len(Stage), depth), np.int32)

    def read(self, places: Array, stage: Stage, clock: Clock) -> None:
        """Note a read; elements in any order, perhaps twice."""
        self._check(places, self._writes, stage, clock, "written")
        missing = ~self.written[places]
        if missing.any():
            raise ProgramError(f"reads {self.name} {places[missing][0]}, which nothing has written")
        self._reads[stage][places] = clock[stage]

    def write(self, places: Array, stage: Stage, clock: Clock, *, stored: bool = False) -> None:
        """Note a write."""
        self._check(places, self._writes, stage, clock, "written")
        self._check(places, self._reads, stage, clock, "read")
        self.written[places], self.stored[places] = True, stored
        self._writes[stage][places] = clock[stage]

    def _check(self, places: Array, times: Array, stage: Stage, clock: Clock, what: str) -> None:
        if places.size and not 0 <= places.min() <= places.max() < self.depth:
            raise ProgramError(
                f"{self.name} {places.min()} to {places.max()}, expected 0 to {self.depth - 1}"
            )
        for other in Stage:
            raced = times[other][places] > clock[other] if other is not stage else np.array(False)
            if raced.any():
                raise ProgramError(
                    f"race on {self.name} {places[raced][0]}: it can be {what} by stage "
                    f"{other.name} at the same time"
                )


class Accesses:
    """The state of all memories while a program is walked through."""

    def __init__(self, program: Program):
        self._program, self._config = program, program.config
        depth = program.config.depth
        self._chip = {
            memory: Shadow(memory.name, depth(memory))
            for memory in (Memory.UOP, Memory.WGT, Memory.INP, Memory.ACC)
        }
        self._unit = min(self._config.element_bytes(memory) for memory in Memory)
        self._dram = Shadow("DRAM unit", -(-len(program.image) // self._unit))
        self._owner = np.full(self._dram.depth, -1)
        for number, place in enumerate(program.places):
            units = self._units(place)
            self._owner[units] = number
            known = place.constant or place.name in program.inputs
            self._dram.written[units] = known
        self._micro_ops = np.zeros(depth(Memory.UOP), np.uint32)
        self._intervals = Intervals(program, self._unit)

    def _units(self, place: Place) -> slice:
        begin = place.offset // self._unit
        return slice(begin, begin + -(-place.size // self._unit))

    def visit(self, instruction: Instruction, clock: Clock) -> Indices | None:
        """Check an instruction; gives the indices of a loop."""
        if isinstance(instruction, Load) and not instruction.is_nop:
            self._load(instruction, clock)
        elif isinstance(instruction, Store) and not instruction.is_nop:
            self._store(instruction, clock)
        elif isinstance(instruction, Gemm | Alu):
            return self._loop(instruction, clock)
        return None

    def _load(self, load: Load, clock: Clock) -> None:
        if load.memory_type not in _LOADED_INTO:
            raise ProgramError(f"loads memory {load.memory_type}, which is none to load")
        units = self._touched(load, writes=False)
        self._dram.read(units, load.stage, clock)
        rows, columns = load.extent
        places = load.sram_base + np.arange(rows * columns)
        memory = _LOADED_INTO[Memory(load.memory_type)]
        self._chip[memory].write(places, load.stage, clock)
        if memory is Memory.UOP:
            if load.extent != (load.y_size, load.x_size):
                raise ProgramError("pads UOP, expected no padding")
            self._micro_ops[places] = self._words(load)
        self._intervals.load(load, places, _starts(self._config, self._program.base, load))

    def _words(self, load: Load) -> Array:
        start = load.dram_base * 4 - self._program.base
        rows = [start + row * load.x_stride * 4 for row in range(load.y_size)]
        image = self._program.image
        return np.concatenate([image[row : row + load.x_size * 4] for row in rows]).view(np.uint32)

    def _store(self, store: Store, clock: Clock) -> None:
        if store.memory_type != Memory.OUT:
            raise ProgramError(
                f"stores memory {store.memory_type}, expected {Memory.OUT.value} (OUT)"
            )
        if store.extent != (store.y_size, store.x_size):
            raise ProgramError("stores with padding, expected none")
        places = store.sram_base + np.arange(store.moved)
        acc = self._chip[Memory.ACC]
        acc.read(places, store.stage, clock)
        if not acc.stored[places].all():
            raise ProgramError(
                f"stores ACC {places[~acc.stored[places]][0]}, last written by a load or a reset, "
                "which does not reach OUT in hardware"
            )
        self._dram.write(self._touched(store, writes=True), store.stage, clock)
        starts = _starts(self._config, self._program.base, store)
        self._intervals.store(places, starts)

    def _touched(self, transfer: Transfer, *, writes: bool) -> Array:
        if not transfer.moved:
            raise ProgramError("has columns and no rows: expected both, or neither for a NOP")
        size = self._config.element_bytes(Memory(transfer.memory_type))
        starts = _starts(self._config, self._program.base, transfer)
        if starts.min() < 0 or starts.max() + size > len(self._program.image):
            raise ProgramError(
                f"bytes {starts.min()} to {starts.max() + size} of the image, expected 0 to "
                f"{len(self._program.image)}"
            )
        units = (starts[:, None] + np.arange(0, size, self._unit)).ravel() // self._unit
        owners = np.unique(self._owner[units])
        if len(owners) > 1 or owners[0] < 0:
            names = [self._program.places[each].name if each >= 0 else "nothing" for each in owners]
            raise ProgramError(f"touches {' and '.join(names)} in DRAM, expected one tensor")
        place = self._program.places[owners[0]]
        if writes and (place.constant or place.name in self._program.inputs):
            raise ProgramError(f"writes '{place.name}', which is constant")
        if transfer.memory_type in _CONSTANT and not place.constant:
            raise ProgramError(f"loads weights, biases or micro-ops from tensor '{place.name}'")
        return units

    def _loop(self, loop: Gemm | Alu, clock: Clock) -> Indices:
        if not 0 <= loop.uop_bgn < loop.uop_end or not loop.steps:
            raise ProgramError("loops over no micro-ops")
        range_ = np.arange(loop.uop_bgn, loop.uop_end)
        self._chip[Memory.UOP].read(range_, loop.stage, clock)
        found = indices(self._config, loop, self._micro_ops[range_])
        acc = self._chip[Memory.ACC]
        if isinstance(loop, Gemm) and not loop.reset_reg:
            self._chip[Memory.INP].read(found.src, loop.stage, clock)
            self._chip[Memory.WGT].read(found.wgt, loop.stage, clock)
        if isinstance(loop, Alu):
            acc.read(found.src, loop.stage, clock)
        reset = isinstance(loop, Gemm) and bool(loop.reset_reg)
        if not reset:
            acc.read(found.dst, loop.stage, clock)
        acc.write(found.dst, loop.stage, clock, stored=not reset)
        self._intervals.loop(loop, found)
        return found


_LOADED_INTO = {
    Memory.UOP: Memory.UOP,
    Memory.WGT: Memory.WGT,
    Memory.INP: Memory.INP,
    Memory.ACC: Memory.ACC,
    Memory.ACC_8BIT: Memory.ACC,
}

_CONSTANT = (Memory.UOP, Memory.WGT, Memory.ACC)


def _starts(config: VtaConfig, base: int, transfer: Transfer) -> Array:
    """Byte in the image at which each element of a transfer starts."""
    rows, columns = np.arange(transfer.y_size)[:, None], np.arange(transfer.x_size)
    elements = transfer.dram_base + rows * transfer.x_stride + columns
    return np.asarray(elements.ravel() * config.element_bytes(Memory(transfer.memory_type)) - base)
