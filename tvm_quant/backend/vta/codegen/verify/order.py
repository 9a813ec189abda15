"""Check tokens, bounds and races.

Every instruction is followed in an order that its tokens allow. A clock for each stage travels with
them: an instruction knows what has ended before it by the clocks of its own stage and of the tokens
that it took. Two accesses of one element, one of them a write, must know of each other; otherwise a
faster stage would change the result, which no simulation in program order shows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.backend.vta.codegen.isa import PORTS, Instruction, Opcode, Stage
from tvm_quant.backend.vta.codegen.program import BASE, Program
from tvm_quant.backend.vta.codegen.verify.fault import fault
from tvm_quant.backend.vta.config import Memory
from tvm_quant.errors import BackendError

Array = npt.NDArray[Any]
Access = tuple[str, Array, bool]  # memory, elements, whether it writes

DRAM = "DRAM"
DRAM_UNIT = 16  # bytes: the smallest element that layers share
MOST_TOKENS = 255


def check_order(program: Program) -> list[int]:
    """The places of all instructions, in an order that their tokens allow.

    Raises:
        BackendError: a stage waits for ever, tokens are left or too many, FINISH overtakes another
            stage; an access leaves its memory, reads what nothing wrote, or races with another.
    """
    return _Follower(program).run()


class _Follower:
    def __init__(self, program: Program):
        self.program = program
        self.config = program.config
        depth = self.config.depth
        sizes = {m.name: depth(m) for m in (Memory.UOP, Memory.WGT, Memory.INP, Memory.ACC)}
        sizes[DRAM] = len(program.image) // DRAM_UNIT
        # the number of the last instruction of each stage that wrote, or read, an element
        self.writes = {name: np.zeros((len(Stage), size), np.int64) for name, size in sizes.items()}
        self.reads = {name: np.zeros((len(Stage), size), np.int64) for name, size in sizes.items()}
        self.micro_ops = np.zeros(depth(Memory.UOP), np.int64)
        self.clock = {stage: np.zeros(len(Stage), np.int64) for stage in Stage}
        self.tokens: dict[str, deque[Array]] = {name: deque() for name in set(PORTS.values())}

    def run(self) -> list[int]:
        every = list(enumerate(self.program.instructions))
        queues = {stage: deque(at for at, one in every if one.stage is stage) for stage in Stage}
        sequence: list[int] = []
        while any(queues.values()):
            ready = [stage for stage, queue in queues.items() if queue and self._can(queue[0])]
            if not ready:
                first = min(queue[0] for queue in queues.values() if queue)
                raise fault(self.program, first, "waits for ever: the program deadlocks")
            at = queues[ready[0]].popleft()
            self._follow(at)
            sequence.append(at)
        left = {name: len(queue) for name, queue in self.tokens.items() if queue}
        if left:
            raise BackendError(f"VTA program: tokens are left in {left}.")
        if any(self.clock[Stage.COMPUTE][s] < self.clock[s][s] for s in Stage):
            raise BackendError("VTA program: FINISH does not wait for all stages.")
        return sequence

    def _ports(self, one: Instruction, kind: str) -> Iterator[str]:
        for (stage, flag), queue in PORTS.items():
            if stage is one.stage and flag.startswith(kind) and one[flag]:
                yield queue

    def _can(self, at: int) -> bool:
        one = self.program.instructions[at]
        return all(self.tokens[queue] for queue in self._ports(one, "pop"))

    def _follow(self, at: int) -> None:
        one = self.program.instructions[at]
        clock = self.clock[one.stage]
        for queue in self._ports(one, "pop"):
            clock = np.maximum(clock, self.tokens[queue].popleft())
        clock = clock.copy()
        clock[one.stage] += 1
        self.clock[one.stage] = clock
        for memory, elements, writes in self._accesses(one):
            self._touch(at, memory, elements, writes, clock)
        for queue in self._ports(one, "push"):
            self.tokens[queue].append(clock)
            if len(self.tokens[queue]) > MOST_TOKENS:
                raise fault(self.program, at, f"more than {MOST_TOKENS} tokens in {queue}")

    def _touch(self, at: int, memory: str, elements: Array, writes: bool, clock: Array) -> None:
        size = self.writes[memory].shape[1]
        if elements.size and not 0 <= elements.min() <= elements.max() < size:
            reached = elements.max() if elements.max() >= size else elements.min()
            raise fault(self.program, at, f"reaches {memory} element {reached} of {size}")
        seen = self.writes[memory][:, elements]
        if writes:
            seen = np.maximum(seen, self.reads[memory][:, elements])
        elif memory != DRAM and not seen.any(axis=0).all():
            raise fault(self.program, at, f"reads {memory} elements that nothing wrote")
        if (seen > clock[:, None]).any():
            raise fault(self.program, at, f"races with another stage for {memory}")
        stage = self.program.instructions[at].stage
        (self.writes if writes else self.reads)[memory][stage, elements] = clock[stage]

    # What an instruction touches -------------------------------------------------------

    def _accesses(self, one: Instruction) -> Iterator[Access]:
        if one.opcode in (Opcode.LOAD, Opcode.STORE):
            if one["x_size"]:
                yield from self._moves(one)
        elif one.opcode is not Opcode.FINISH:
            yield from self._computes(one)

    def _moves(self, one: Instruction) -> Iterator[Access]:
        memory = Memory(one["memory_type"])
        yield DRAM, self._dram(memory, one), one.opcode is Opcode.STORE
        rows = one["y_size"] + one["y_pad_0"] + one["y_pad_1"]
        columns = one["x_size"] + one["x_pad_0"] + one["x_pad_1"]
        on_chip = np.arange(one["sram_base"], one["sram_base"] + rows * columns)
        if one.opcode is Opcode.STORE:
            yield Memory.ACC.name, on_chip, False
            return
        name = Memory.ACC.name if memory is Memory.ACC_8BIT else memory.name
        yield name, on_chip, True
        if memory is Memory.UOP:
            start = one["dram_base"] * 4 - BASE
            data = self.program.image[start : start + 4 * one["x_size"]].view(np.uint32)
            self.micro_ops[on_chip] = data

    def _dram(self, memory: Memory, one: Instruction) -> Array:
        size = self.config.element_bytes(memory)
        rows = np.arange(one["y_size"])[:, None] * one["x_stride"]
        start = (one["dram_base"] + rows + np.arange(one["x_size"])) * size - BASE
        if size < DRAM_UNIT:
            return np.unique(start // DRAM_UNIT)
        parts = np.arange(size // DRAM_UNIT)
        return np.asarray((start.reshape(-1, 1) // DRAM_UNIT + parts).reshape(-1))

    def _computes(self, one: Instruction) -> Iterator[Access]:
        ops = np.arange(one["uop_bgn"], one["uop_end"])
        yield Memory.UOP.name, ops, False
        codes = self.micro_ops[ops]
        bits = self.config.index_bits(Memory.ACC)
        mask = (1 << bits) - 1
        gemm = one.opcode is Opcode.GEMM
        dst = self._indices(one, "dst", codes & mask)
        if not (gemm and one["reset_reg"]):
            yield Memory.ACC.name, dst, False
            if gemm or not one["use_imm"]:
                source = Memory.INP.name if gemm else Memory.ACC.name
                yield source, self._indices(one, "src", codes >> bits & mask), False
            if gemm:
                yield Memory.WGT.name, self._indices(one, "wgt", codes >> 2 * bits), False
        yield Memory.ACC.name, dst, True

    def _indices(self, one: Instruction, name: str, base: Array) -> Array:
        outer = np.arange(one["iter_out"]) * one[f"{name}_factor_out"]
        inner = np.arange(one["iter_in"]) * one[f"{name}_factor_in"]
        loops = (outer[:, None] + inner).reshape(-1)
        return np.unique(np.unique(loops)[:, None] + np.unique(base))
