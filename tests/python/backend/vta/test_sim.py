"""The simulator against programs that the reference simulator of VTA ran."""

import json

import numpy as np
import pytest

from tvm_quant.backend.vta import VtaConfig
from tvm_quant.backend.vta.isa import Finish, Load, decode_all, encode_all
from tvm_quant.backend.vta.sim import COUNTERS, Simulator
from tvm_quant.backend.vta.streams import POLICIES, interleave
from tvm_quant.errors import ProgramError

CONFIG = VtaConfig()


@pytest.fixture(scope="module")
def goldens(shared):
    path = shared / "data/vta/golden_programs.npz"
    if not path.is_file():
        pytest.skip(f"needs {path}")
    with np.load(path) as file:
        return dict(file)


@pytest.mark.parametrize("policy", POLICIES)
def test_image_and_counters_are_those_of_the_reference(goldens, policy):
    for index in range(int(goldens["count"])):
        dram = goldens[f"dram{index}"].copy()
        simulator = Simulator(CONFIG, dram, int(goldens["base"]), seed=index)
        simulator.run(decode_all(CONFIG, goldens[f"insns{index}"]), policy)
        np.testing.assert_array_equal(dram, goldens[f"want{index}"])
        seen = {name: simulator.counters[name] for name in COUNTERS}
        assert seen == json.loads(str(goldens[f"counters{index}"]))


def test_decoded_instructions_encode_to_the_same_bytes(goldens):
    for index in range(int(goldens["count"])):
        data = goldens[f"insns{index}"]
        np.testing.assert_array_equal(encode_all(CONFIG, decode_all(CONFIG, data)), data)


def test_a_token_that_never_comes_is_a_deadlock():
    with pytest.raises(ProgramError, match=r"deadlock.*instruction 0"):
        list(interleave([Finish(pop_prev=1)]))


def test_a_token_that_nobody_takes_is_an_error():
    with pytest.raises(ProgramError, match=r"left at the end: {'LOADED': 1}"):
        list(interleave([Load(memory_type=2, push_next=1), Finish()]))
