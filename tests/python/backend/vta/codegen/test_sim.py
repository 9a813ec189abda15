"""The simulator against programs that VTA's own functional simulator has run."""

import json
from functools import cache

import numpy as np
import pytest

from tvm_quant.backend.vta import VtaConfig
from tvm_quant.backend.vta.codegen.isa import Instruction, Opcode, decode, encode
from tvm_quant.backend.vta.codegen.policy import POLICIES
from tvm_quant.backend.vta.codegen.program import BASE, Program
from tvm_quant.backend.vta.codegen.sim import simulate_image
from tvm_quant.errors import BackendError

CONFIG = VtaConfig()


@cache
def golden(path):
    """(program, memory afterwards, counters) of each."""
    with np.load(path) as data:
        assert int(data["base"]) == BASE
        return [
            (
                Program(
                    config=CONFIG,
                    image=data[f"dram{index}"],
                    instructions=_decoded(data[f"insns{index}"]),
                    inputs=(),
                    outputs=(),
                ),
                data[f"want{index}"],
                json.loads(str(data[f"counters{index}"])),
            )
            for index in range(int(data["count"]))
        ]


def _decoded(rows):
    instructions = tuple(decode(row.tobytes(), CONFIG) for row in rows)
    for one, row in zip(instructions, rows, strict=True):
        assert encode(one, CONFIG) == row.tobytes()
    return instructions


@pytest.mark.parametrize("policy", POLICIES)
def test_golden_programs_leave_the_same_memory_and_counters(shared, policy):
    programs = golden(shared / "data/vta/golden_programs.npz")
    assert len(programs) == 24
    for program, wanted, counters in programs:
        image, run = simulate_image(program, policy=POLICIES[policy])
        np.testing.assert_array_equal(image, wanted)
        seen = {f"{m.name.lower()}_load_nbytes": count for m, count in run.loaded.items()}
        seen["out_store_nbytes"] = run.stored
        seen["gemm_counter"], seen["alu_counter"] = run.gemm_steps, run.alu_steps
        assert seen == counters


def test_a_program_that_waits_for_ever_is_refused():
    stuck = Instruction(opcode=Opcode.GEMM, fields={"pop_prev": 1})
    program = Program(
        config=CONFIG,
        image=np.zeros(4096, np.uint8),
        instructions=(stuck, Instruction(opcode=Opcode.FINISH)),
        inputs=(),
        outputs=(),
    )
    with pytest.raises(BackendError, match="the program deadlocks"):
        simulate_image(program)


def test_a_field_that_does_not_hold_its_value_is_named():
    with pytest.raises(BackendError, match="GEMM: field iter_in is 16384, which 14 bits"):
        encode(Instruction(opcode=Opcode.GEMM, fields={"iter_in": 1 << 14}), CONFIG)
