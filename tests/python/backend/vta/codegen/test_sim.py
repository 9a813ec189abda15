"""The simulator against programs that VTA's own functional simulator has run."""

import json

import numpy as np
import pytest

from tvm_quant.backend.vta import VtaConfig
from tvm_quant.backend.vta.codegen.isa import Instruction, Opcode, decode, encode
from tvm_quant.backend.vta.codegen.program import BASE, Program
from tvm_quant.backend.vta.codegen.sim import simulate_image
from tvm_quant.errors import BackendError

CONFIG = VtaConfig()


def test_golden_programs_leave_the_same_memory_and_counters(shared):
    with np.load(shared / "data/vta/golden_programs.npz") as golden:
        assert int(golden["base"]) == BASE
        for index in range(int(golden["count"])):
            instructions = [decode(row.tobytes(), CONFIG) for row in golden[f"insns{index}"]]
            for one, row in zip(instructions, golden[f"insns{index}"], strict=True):
                assert encode(one, CONFIG) == row.tobytes()
            program = Program(
                config=CONFIG,
                image=golden[f"dram{index}"],
                instructions=tuple(instructions),
                inputs=(),
                outputs=(),
            )
            image, run = simulate_image(program)
            np.testing.assert_array_equal(image, golden[f"want{index}"])
            counters = json.loads(str(golden[f"counters{index}"]))
            assert run.gemm_steps == counters["gemm_counter"]


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
