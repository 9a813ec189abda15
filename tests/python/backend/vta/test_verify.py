"""The verifier finds what is wrong with a program, or the program still gives the right answer."""

import dataclasses
from random import Random

import numpy as np
import pytest

import vta_regions
from tvm_quant.backend.vta import VtaConfig, compile_region
from tvm_quant.backend.vta.isa import Opcode, Stage
from tvm_quant.backend.vta.runtime import run_program
from tvm_quant.backend.vta.streams import POLICIES
from tvm_quant.backend.vta.verify import verify
from tvm_quant.errors import ProgramError
from vta_mutants import mutate

CONFIG = VtaConfig()


@pytest.fixture(scope="module")
def compiled():
    random = np.random.default_rng(5)
    region = vta_regions.block(random, channels=20, size=5)
    return compile_region(region, CONFIG), vta_regions.inputs(random, region)


def passes(program):
    try:
        verify(program)
    except ProgramError:
        return False
    return True


def test_mutants_are_found_or_harmless(compiled):
    program, arrays = compiled
    want = run_program(program, *arrays).outputs
    found = 0
    for seed in range(60):
        mutant = mutate(program, Random(seed))
        if not passes(mutant):
            found += 1
            continue
        for policy in POLICIES:
            got = run_program(mutant, *arrays, policy=policy).outputs
            for left, right in zip(got, want, strict=True):
                np.testing.assert_array_equal(left, right, err_msg=f"mutant {seed}, {policy}")
    assert found > 30


def test_a_missing_barrier_between_layers_is_a_race(compiled):
    program, _ = compiled
    second = program.spans[1]
    instructions = list(program.instructions)
    # Its first load no longer waits for the stores of the layer before.
    barrier = next(i for i in range(second.begin, second.end) if instructions[i].push_prev)
    load = next(i for i in range(second.begin, second.end) if instructions[i].stage is Stage.LOAD)
    instructions[barrier] = dataclasses.replace(instructions[barrier], push_prev=0)
    instructions[load] = dataclasses.replace(instructions[load], pop_next=0)
    broken = dataclasses.replace(program, instructions=tuple(instructions))
    with pytest.raises(ProgramError, match=r"layer 'second'.*DRAM"):
        verify(broken)


def test_a_missing_clip_is_an_error(compiled):
    program, _ = compiled
    alu = [i for i, each in enumerate(program.instructions) if each.opcode is Opcode.ALU]
    first = program.spans[0]
    clip = max(i for i in alu if first.begin <= i < first.end)
    wide = dataclasses.replace(program.instructions[clip], imm=300)
    instructions = (*program.instructions[:clip], wide, *program.instructions[clip + 1 :])
    broken = dataclasses.replace(program, instructions=instructions)
    with pytest.raises(ProgramError, match="a clip is missing"):
        verify(broken)
