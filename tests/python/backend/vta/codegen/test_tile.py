"""Tiles: how well they keep the matrix unit busy, and that any that fits computes the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vta_oracle
from tvm_quant.backend.vta import Convolution, MaxPool, Region, Residual, Tensor, VtaConfig
from tvm_quant.backend.vta.codegen import compile_region, simulate
from tvm_quant.backend.vta.codegen.tile import Problem, Room, Tile, choose, divisions
from tvm_quant.errors import BackendError

CONFIG = VtaConfig()
# name: (input extent, channels in and out, kernel, stride, how often ResNet-18 has it, cycles)
RESNET18 = {
    "C2": (56, 64, 64, 3, 1, 4, 532_266),
    "C3": (56, 64, 128, 3, 2, 1, 267_694),
    "C4": (56, 64, 128, 1, 2, 1, 66_902),
    "C5": (28, 128, 128, 3, 1, 3, 493_454),
    "C6": (28, 128, 256, 3, 2, 1, 248_606),
    "C7": (28, 128, 256, 1, 2, 1, None),
    "C8": (14, 256, 256, 3, 1, 3, 477_838),
    "C9": (14, 256, 512, 3, 2, 1, 247_046),
    "C10": (14, 256, 512, 1, 2, 1, None),
    "C11": (7, 512, 512, 3, 1, 3, 471_726),
}
"""The convolutions of ResNet-18 between its stem and its classifier."""


def convolution(extent, inputs, outputs, kernel, stride, *, residual=False):
    rng = np.random.default_rng(0)
    pad = kernel // 2
    size = (extent + 2 * pad - kernel) // stride + 1
    layer = Convolution(
        name="layer",
        output="y",
        data="x",
        weight=rng.integers(-127, 128, (outputs, inputs, kernel, kernel), np.int8),
        bias=rng.integers(-9999, 9999, outputs).astype(np.int32),
        shift=12,
        low=0,
        strides=(stride, stride),
        padding=(pad,) * 4,
        residual=Residual(tensor="x", shift=3) if residual else None,
    )
    return region(layer, (1, inputs, extent, extent), (1, outputs, size, size))


def region(layer, read, written):
    tensors = (Tensor(name="x", shape=read), Tensor(name="y", shape=written))
    return Region(name="one", tensors=tensors, layers=(layer,), inputs=("x",), outputs=("y",))


def three_by_three(extent, blocks):
    return Problem(
        plane=(extent, extent),
        data=(extent, extent),
        samples=1,
        outputs=blocks,
        inputs=blocks,
        shared=True,
        kernel=(3, 3),
        strides=(1, 1),
        dilation=(1, 1),
        residual=False,
    )


def codes(shape):
    return np.random.default_rng(1).integers(-128, 128, shape, np.int8)


def test_the_matrix_unit_is_busy_in_resnet18():
    steps = cycles = 0
    for extent, inputs, outputs, kernel, stride, times, bound in RESNET18.values():
        one = convolution(extent, inputs, outputs, kernel, stride)
        run = simulate(compile_region(one, CONFIG), [codes(one.tensors[0].shape)])
        assert bound is None or run.cycles <= bound
        steps, cycles = steps + times * run.gemm_steps, cycles + times * run.cycles
    assert steps == 6_623_232
    assert steps / cycles > 0.9


def test_the_model_of_the_pipeline_agrees_with_the_simulator():
    one = convolution(28, 128, 128, 3, 1)
    problem = three_by_three(28, 8)
    for tile in (Tile(28, 14, 2, 2), Tile(7, 7, 4, 1), Tile(2, 28, 1, 8)):
        program = compile_region(one, CONFIG, tiles={"layer": tile})
        cycles = simulate(program, [codes((1, 128, 28, 28))]).cycles
        assert problem.cycles(tile) == pytest.approx(cycles, rel=0.01)


@settings(max_examples=20)
@given(st.data())
def test_any_tile_that_fits_computes_the_same(data):
    kernel, stride, residual = data.draw(
        st.sampled_from([(1, 1, False), (3, 1, True), (3, 2, False), (5, 2, False)])
    )
    one = convolution(7, 40, 40, kernel, stride, residual=residual)
    height, width = one.tensors[1].shape[2:]
    tile = Tile(
        data.draw(st.integers(1, height)),
        data.draw(st.integers(1, width)),
        data.draw(st.sampled_from(divisions(3))),
        data.draw(st.sampled_from(divisions(3))),
    )
    x = codes((1, 40, 7, 7))
    program = compile_region(one, CONFIG, tiles={"layer": tile})
    np.testing.assert_array_equal(simulate(program, [x]).outputs, vta_oracle.run(one, [x]))


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"log_block": 5, "log_wgt_buff_size": 20},
        {"log_block": 3, "log_wgt_buff_size": 16, "log_acc_buff_size": 16, "log_inp_buff_size": 14},
        {"log_inp_buff_size": 10, "log_acc_buff_size": 12, "log_wgt_buff_size": 14},
        {"log_uop_buff_size": 7},
    ],
    ids=["default", "32 lanes", "8 lanes", "small memories", "32 micro-ops"],
)
def test_the_smallest_and_the_largest_tile_fit_other_memories(sizes):
    config = VtaConfig(**sizes)
    one, x = convolution(5, 40, 40, 3, 1, residual=True), codes((1, 40, 5, 5))
    expected = vta_oracle.run(one, [x])
    for tiles in ({"layer": Tile(1, 1, 1, 1)}, {}):
        found = simulate(compile_region(one, config, tiles=tiles), [x]).outputs
        np.testing.assert_array_equal(found, expected)


def test_a_tile_that_does_not_fit_is_refused():
    with pytest.raises(
        BackendError, match=r"layer 'layer' does not fit the chip in a tile of Tile"
    ):
        compile_region(convolution(56, 64, 64, 3, 1), CONFIG, tiles={"layer": Tile(56, 56, 4, 4)})


@pytest.mark.parametrize(
    "sizes",
    [{"log_wgt_buff_size": 11}, {"log_inp_buff_size": 7}, {"log_uop_buff_size": 5}],
    ids=["weights", "inputs", "micro-ops"],
)
def test_a_convolution_that_does_not_fit_is_refused(sizes):
    with pytest.raises(BackendError, match="layer 'layer' does not fit the chip: half of its mem"):
        compile_region(convolution(9, 16, 16, 7, 1), VtaConfig(**sizes))


def test_a_window_that_does_not_fit_is_refused():
    pool = MaxPool(name="layer", output="y", data="x", window=(40, 40))
    with pytest.raises(BackendError, match=r"layer 'layer' does not fit the chip: its window of"):
        compile_region(region(pool, (1, 16, 40, 40), (1, 16, 1, 1)), CONFIG)


def test_nothing_is_chosen_where_nothing_fits():
    problem = three_by_three(4, 1)
    assert choose(problem, Room(inp=8, wgt=512, acc=1024, micro_ops=1024)) is None
    assert choose(problem, Room(inp=36, wgt=9, acc=17, micro_ops=36)) == Tile(4, 4, 1, 1)
