"""Where the time of a program goes, and its text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvm_quant.backend.vta.codegen.isa import Alu, Instruction, Opcode, Stage
from tvm_quant.backend.vta.codegen.program import Program
from tvm_quant.backend.vta.codegen.sim import Event
from tvm_quant.backend.vta.config import Memory


@dataclass(frozen=True, kw_only=True)
class LayerTrace:
    """One layer of a program.

    Attributes:
        layer: its name; "end" waits for all stages.
        instructions: of it.
        gemm_steps: products of a vector and a matrix.
        cycles: from its first instruction to its last.
        busy: cycles of each stage in it.
    """

    layer: str
    instructions: int
    gemm_steps: int
    cycles: int
    busy: dict[Stage, int]

    @property
    def utilization(self) -> float:
        """The share of its cycles in which the matrix unit could have done its products."""
        return self.gemm_steps / max(self.cycles, 1)


def layer_traces(events: Sequence[Event]) -> list[LayerTrace]:
    """One row a layer, in order."""
    labels = dict.fromkeys(event.instruction.label for event in events)
    return [_trace(label, [e for e in events if e.instruction.label == label]) for label in labels]


def _trace(label: str, events: Sequence[Event]) -> LayerTrace:
    return LayerTrace(
        layer=label,
        instructions=len(events),
        gemm_steps=sum(_steps(event.instruction) for event in events),
        cycles=max(event.end for event in events) - min(event.start for event in events),
        busy={
            stage: sum(e.end - e.start for e in events if e.instruction.stage is stage)
            for stage in Stage
        },
    )


def _steps(one: Instruction) -> int:
    if one.opcode is not Opcode.GEMM or one["reset_reg"]:
        return 0
    return one["iter_out"] * one["iter_in"] * (one["uop_end"] - one["uop_bgn"])


def kind_of(one: Instruction) -> str:
    """What an instruction does, in a word or two: `LOAD WGT`, `ALU SHR`, `NOP`."""
    if one.opcode in (Opcode.LOAD, Opcode.STORE):
        return f"{one.opcode.name} {Memory(one['memory_type']).name}" if one["x_size"] else "NOP"
    if one.opcode is Opcode.ALU:
        return f"ALU {Alu(one['alu_opcode']).name}"
    return "RESET" if one["reset_reg"] else one.opcode.name


def disassembly(program: Program) -> Iterator[str]:
    """One line an instruction, with a heading for each layer; fields that are 0 are left out."""
    label = None
    for number, one in enumerate(program.instructions):
        if one.label != label:
            label = one.label
            yield f"# {label}"
        shown = {k: v for k, v in one.fields.items() if v and k not in _SHOWN}
        fields = " ".join(f"{name}={value}" for name, value in shown.items())
        yield f"{number:6d} {one.stage.name.lower():7s} {kind_of(one):10s} {fields}".rstrip()


_SHOWN = ("memory_type", "alu_opcode", "reset_reg")
