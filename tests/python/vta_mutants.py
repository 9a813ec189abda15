"""Broken programs: what the verifier is measured with."""

from __future__ import annotations

import dataclasses
from random import Random

from tvm_quant.backend.vta.isa import Instruction, layout
from tvm_quant.backend.vta.program import Program

FLAGS = ("pop_prev", "pop_next", "push_prev", "push_next")
KINDS = ("token", "drop", "swap", "repeat", "shift")


def mutate(program: Program, random: Random) -> Program:
    """A copy with one token, instruction or index changed."""
    instructions = list(program.instructions)
    index, kind = random.randrange(len(instructions)), random.choice(KINDS)
    if kind == "token":
        instructions[index] = _toggled(instructions[index], random)
    elif kind == "drop":
        del instructions[index]
    elif kind == "swap":
        other = random.randrange(len(instructions))
        instructions[index], instructions[other] = instructions[other], instructions[index]
    elif kind == "repeat":
        instructions.insert(index, instructions[index])
    else:
        instructions[index] = _shifted(program, instructions[index], random)
    return dataclasses.replace(program, instructions=tuple(instructions))


def _toggled(instruction: Instruction, random: Random) -> Instruction:
    flag = random.choice(FLAGS)
    return dataclasses.replace(instruction, **{flag: 1 - getattr(instruction, flag)})


def _shifted(program: Program, instruction: Instruction, random: Random) -> Instruction:
    names = [
        field.name
        for field in layout(program.config, instruction.opcode)
        if field.name not in ("opcode", "memory_type", *FLAGS)
    ]
    if not names:
        return _toggled(instruction, random)
    name = random.choice(names)
    step = random.choice((-1, 1))
    return dataclasses.replace(instruction, **{name: getattr(instruction, name) + step})
