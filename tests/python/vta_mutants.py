"""Broken programs, with which the verifier is measured: `python vta_mutants.py 1000`."""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from random import Random

import numpy as np

import vta_regions
from tvm_quant.backend.vta import VtaConfig, compile_region
from tvm_quant.backend.vta.isa import Instruction, layout
from tvm_quant.backend.vta.program import Program
from tvm_quant.backend.vta.runtime import run_program
from tvm_quant.backend.vta.streams import POLICIES
from tvm_quant.backend.vta.verify import verify
from tvm_quant.errors import ProgramError

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


def judge(program: Program, arrays: list[np.ndarray], seed: int) -> str:
    """What becomes of the mutant of a seed."""
    mutant = mutate(program, Random(seed))
    try:
        verify(mutant)
    except ProgramError:
        return "found"
    want = run_program(program, *arrays).outputs
    # Another seed fills the memories with other values at first.
    results = [
        run_program(mutant, *arrays, policy=policy, seed=number).outputs
        for number, policy in enumerate(POLICIES)
    ]
    first = results[0]
    if not all(_equal(first, other) for other in results[1:]):
        return "depends on the order"
    return "harmless" if _equal(first, want) else "another result under every order"


def _equal(left: list[np.ndarray], right: list[np.ndarray]) -> bool:
    return all(np.array_equal(*pair) for pair in zip(left, right, strict=True))


def main() -> None:
    """Print the verdicts on as many mutants as the first argument says."""
    random = np.random.default_rng(5)
    region = vta_regions.block(random, channels=20, size=5)
    program = compile_region(region, VtaConfig())
    arrays = vta_regions.inputs(random, region)
    print(Counter(judge(program, arrays, seed) for seed in range(int(sys.argv[1]))))


if __name__ == "__main__":
    main()
