import numpy as np
import pytest
import tvm

import vta_regions
from tvm_quant.backend.vta import Program, VtaConfig, compile_region
from tvm_quant.backend.vta.reference import run_region
from tvm_quant.backend.vta.runtime import RUN, check_config, run_program
from tvm_quant.errors import ProgramError


@pytest.fixture(scope="module")
def compiled():
    random = np.random.default_rng(0)
    region = vta_regions.block(random, size=5)
    return region, compile_region(region, VtaConfig()), vta_regions.inputs(random, region)


def test_the_packed_function_runs_a_program_from_its_arrays(compiled):
    region, program, arrays = compiled
    outputs = [np.zeros(region.by_name[name].shape, np.int8) for name in region.outputs]
    tensors = [tvm.runtime.tensor(each) for each in (*arrays, program.image, program.insns)]
    targets = [tvm.runtime.tensor(each) for each in outputs]
    tvm.get_global_func(RUN)(*tensors, tvm.runtime.tensor(program.meta), *targets)
    for got, want in zip(targets, run_region(region, *arrays), strict=True):
        np.testing.assert_array_equal(got.numpy(), want)


def test_damaged_meta_data_is_an_error(compiled):
    _, program, _ = compiled
    damaged = np.frombuffer(
        program.meta.tobytes().replace(b'"LOG_BLOCK": 4', b'"LOG_BLOCK": 5'), np.uint8
    )
    with pytest.raises(ProgramError, match="of the configuration, expected"):
        Program.from_arrays(program.image, program.insns, damaged)


def test_a_program_for_another_vta_is_an_error(compiled):
    _, program, _ = compiled
    with pytest.raises(ProgramError, match="compile the module again for this one"):
        check_config(program, VtaConfig(log_block=5))


def test_inputs_that_do_not_fit_are_errors(compiled):
    _, program, arrays = compiled
    with pytest.raises(ProgramError, match="input 'x' is int8"):
        run_program(program, arrays[0][:, :3])
