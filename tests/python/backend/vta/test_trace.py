from itertools import pairwise

import numpy as np
import pytest

import vta_regions
from tvm_quant.backend.vta import VtaConfig, compile_region
from tvm_quant.backend.vta.cycles import CycleModel, layer_cycles, timeline
from tvm_quant.backend.vta.trace import kind_of, listing
from tvm_quant.report import plot_timeline, spans_of


@pytest.fixture(scope="module")
def program():
    region = vta_regions.block(np.random.default_rng(0), size=5)
    return compile_region(region, VtaConfig())


def test_every_instruction_has_a_line_and_every_layer_a_row(program):
    names = ["first", "second", "sum", "pool", "last", "dense"]
    lines = listing(program).splitlines()
    assert [line[2:] for line in lines if line.startswith("#")] == [*names, "end"]
    assert len(lines) == len(program.instructions) + len(names) + 1
    assert [row.layer for row in layer_cycles(program)][: len(names)] == names


def test_the_picture_shows_every_instruction_that_works(program, tmp_path):
    spans = spans_of(program)
    assert {span.row for span in spans} == {"load", "compute", "store"}
    assert {span.kind for span in spans} == {
        kind_of(one) for one in program.instructions if not getattr(one, "is_nop", False)
    }
    plot_timeline(tmp_path / "stages.png", spans)
    assert (tmp_path / "stages.png").read_bytes().startswith(b"\x89PNG")


def test_a_stage_does_one_thing_at_a_time(program):
    times = timeline(program)
    for stage in {each.stage for each in program.instructions}:
        own = [
            t for t, each in zip(times, program.instructions, strict=True) if each.stage is stage
        ]
        assert all(first[1] <= second[0] for first, second in pairwise(own))


def test_a_shared_bus_takes_no_less_time(program):
    alone, shared = timeline(program), timeline(program, CycleModel(shared_bus=True))
    assert shared[-1][1] >= alone[-1][1]


def test_a_3x3_convolution_multiplies_in_most_cycles():
    region = vta_regions.convolution(
        np.random.default_rng(0), shape=(1, 256, 14, 14), outputs=256, shift=12, low=0
    )
    (found,) = layer_cycles(compile_region(region, VtaConfig()))
    assert found.gemm_steps == 16 * 16 * 9 * 14 * 14
    assert found.utilization >= 0.95
