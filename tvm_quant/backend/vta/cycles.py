"""How long a program takes at best: an ideal bound, not a prediction for hardware."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from tvm_quant.backend.vta.config import Memory
from tvm_quant.backend.vta.isa import Alu, Gemm, Instruction, Loop, Opcode, Stage, Token, Transfer
from tvm_quant.backend.vta.program import Program
from tvm_quant.backend.vta.streams import interleave


@dataclass(frozen=True, kw_only=True)
class CycleModel:
    """Costs in cycles.

    Attributes:
        latency: of a transfer before its first byte.
        bus_bytes: of a transfer per cycle.
        pipeline: of a GEMM or ALU instruction before its first result.
        immediate, tensor: of an ALU step with an immediate, with a second sum.
        shared_bus: whether one transfer at a time uses the bus, in the order of the program.
    """

    latency: int = 16
    bus_bytes: int = 8
    pipeline: int = 4
    immediate: int = 1
    tensor: int = 2
    shared_bus: bool = False

    def cost(self, program: Program, instruction: Instruction) -> int:
        """Cycles of one instruction."""
        if isinstance(instruction, Transfer) and not instruction.is_nop:
            size = program.config.element_bytes(Memory(instruction.memory_type))
            return self.latency + -(-instruction.moved * size // self.bus_bytes)
        if isinstance(instruction, Alu):
            each = self.immediate if instruction.use_imm else self.tensor
            return instruction.steps * each + self.pipeline
        if isinstance(instruction, Loop):
            return instruction.steps + self.pipeline
        return 1


@dataclass(frozen=True, kw_only=True)
class LayerCycles:
    """Figures of a layer.

    Attributes:
        layer: its name.
        instructions: number of them.
        begin, end: cycles.
        gemm_steps: products of elements, resets left out.
        load_bytes, store_bytes: that cross the bus.
    """

    layer: str
    instructions: int
    begin: int
    end: int
    gemm_steps: int
    load_bytes: int
    store_bytes: int

    @property
    def cycles(self) -> int:
        """From its first instruction to its last."""
        return self.end - self.begin

    @property
    def utilization(self) -> float:
        """Share of the cycles in which the GEMM unit multiplies."""
        return self.gemm_steps / max(1, self.cycles)


def timeline(program: Program, model: CycleModel | None = None) -> list[tuple[int, int]]:
    """Begin and end of each instruction in cycles: it starts when its stage and tokens can."""
    model = model or CycleModel()
    free, bus = dict.fromkeys(Stage, 0), 0
    queues: dict[Token, deque[int]] = {token: deque() for token in Token}
    times = [(0, 0)] * len(program.instructions)
    for index in interleave(program.instructions):
        instruction = program.instructions[index]
        begin = max([free[instruction.stage], *(queues[t].popleft() for t in instruction.pops)])
        waits = model.shared_bus and isinstance(instruction, Transfer) and not instruction.is_nop
        begin = max(begin, bus) if waits else begin
        end = begin + model.cost(program, instruction)
        bus = end if waits else bus
        free[instruction.stage], times[index] = end, (begin, end)
        for token in instruction.pushes:
            queues[token].append(end)
    return times


def layer_cycles(program: Program, model: CycleModel | None = None) -> list[LayerCycles]:
    """Figures of each layer of a program."""
    times = timeline(program, model)
    found = []
    for span in program.spans:
        own = program.instructions[span.begin : span.end]
        found.append(
            LayerCycles(
                layer=span.layer,
                instructions=len(own),
                begin=min(begin for begin, _ in times[span.begin : span.end]),
                end=max(end for _, end in times[span.begin : span.end]),
                gemm_steps=sum(_gemm_steps(instruction) for instruction in own),
                load_bytes=_bytes(program, own, Opcode.LOAD),
                store_bytes=_bytes(program, own, Opcode.STORE),
            )
        )
    return found


def _gemm_steps(instruction: Instruction) -> int:
    multiplies = isinstance(instruction, Gemm) and not instruction.reset_reg
    return instruction.steps if isinstance(instruction, Gemm) and multiplies else 0


def _bytes(program: Program, instructions: Sequence[Instruction], opcode: Opcode) -> int:
    return sum(
        each.moved * program.config.element_bytes(Memory(each.memory_type))
        for each in instructions
        if isinstance(each, Transfer) and each.opcode is opcode
    )
