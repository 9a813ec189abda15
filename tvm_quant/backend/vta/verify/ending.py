"""FINISH: the last instruction, after everything else under every order."""

from __future__ import annotations

from collections import Counter

from tvm_quant.backend.vta.isa import Opcode, Stage
from tvm_quant.backend.vta.program import Program
from tvm_quant.backend.vta.verify.clocks import Clock
from tvm_quant.errors import ProgramError


def check_ending(program: Program, seen: list[Clock]) -> None:
    """Raise ProgramError unless one FINISH ends the program and waits for all stages."""
    finishes = [
        index
        for index, instruction in enumerate(program.instructions)
        if instruction.opcode is Opcode.FINISH
    ]
    if finishes != [len(program.instructions) - 1]:
        raise ProgramError(
            f"VTA program: FINISH at {finishes}, expected one, at the end "
            f"({len(program.instructions) - 1})."
        )
    for stage, flags in _MISSING_PORTS.items():
        for index, instruction in enumerate(program.instructions):
            wrong = [flag for flag in flags if getattr(instruction, flag)]
            if instruction.stage is stage and wrong:
                raise ProgramError(
                    f"VTA program: instruction {index} has {wrong[0]}, which the stage "
                    f"{stage.name} lacks."
                )
    counts = Counter(instruction.stage for instruction in program.instructions)
    total = tuple(counts[stage] for stage in Stage)
    if seen[-1] != total:
        raise ProgramError(
            f"VTA program: FINISH is sure to run after {seen[-1]} instructions of load, compute "
            f"and store, expected {total}: a stage can still be at work."
        )


_MISSING_PORTS = {
    Stage.LOAD: ("pop_prev", "push_prev"),
    Stage.STORE: ("pop_next", "push_next"),
}
