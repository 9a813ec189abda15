"""The verifier finds what is wrong with a program, or the program still gives the right answer."""

import dataclasses
from collections import Counter

import numpy as np
import pytest

import vta_regions
from tvm_quant.backend.vta import VtaConfig, compile_region
from tvm_quant.backend.vta.isa import Opcode, Stage
from tvm_quant.backend.vta.verify import verify
from tvm_quant.errors import ProgramError
from vta_mutants import judge

CONFIG = VtaConfig()


@pytest.fixture(scope="module")
def compiled():
    random = np.random.default_rng(5)
    region = vta_regions.block(random, channels=20, size=5)
    return compile_region(region, CONFIG), vta_regions.inputs(random, region)


def test_mutants_are_found_or_give_one_result_under_every_policy(compiled):
    """A mutant that is a right program for something else only a comparison of results can find."""
    program, arrays = compiled
    verdicts = Counter(judge(program, arrays, seed) for seed in range(60))
    assert verdicts["depends on the order"] == 0
    assert verdicts["found"] > 30


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
