"""Programs against the NumPy reference of their layers, bit for bit."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vta_regions
from tvm_quant.backend.vta import Add, MaxPool, Region, Tensor, VtaConfig, compile_region
from tvm_quant.backend.vta.reference import run_region
from tvm_quant.backend.vta.runtime import run_program
from tvm_quant.backend.vta.streams import POLICIES
from tvm_quant.backend.vta.tile import Tile
from tvm_quant.errors import UnsupportedError

CONFIGS = {
    "default": VtaConfig(),
    "block 32": VtaConfig(log_block=5),
    "small": VtaConfig(log_inp_buff_size=12, log_acc_buff_size=14, log_uop_buff_size=12),
    "batch 2": VtaConfig(log_batch=1),
}


def check(region, arrays, config=CONFIGS["default"], policy="round-robin", **options):
    result = run_program(compile_region(region, config, **options), *arrays, policy=policy)
    for got, want in zip(result.outputs, run_region(region, *arrays), strict=True):
        np.testing.assert_array_equal(got, want)


@st.composite
def convolutions(draw):
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kernel = draw(st.integers(1, 7))
    pad = draw(st.integers(0, 3))
    smallest = max(1, kernel - 2 * pad)
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    outputs = groups * draw(st.integers(1, 14))
    shifts = st.integers(-4, 31)
    per_channel = draw(st.booleans())
    residual = draw(st.none() | st.integers(0, 12))
    region = vta_regions.convolution(
        random,
        shape=(
            draw(st.integers(1, 2)),
            groups * draw(st.integers(1, 14)),
            draw(st.integers(smallest, 11)),
            draw(st.integers(smallest, 11)),
        ),
        outputs=outputs,
        kernel=kernel,
        stride=draw(st.integers(1, 2)),
        pad=pad,
        groups=groups,
        shift=random.integers(-4, 32, outputs) if per_channel else draw(shifts),
        residual=random.integers(0, 13, outputs)
        if residual is not None and per_channel
        else residual,
        low=draw(st.sampled_from([-128, -127, 0])),
    )
    return region, vta_regions.inputs(
        random, region, draw(st.sampled_from([None, None, -128, 127]))
    )


@settings(max_examples=60)
@given(convolutions(), st.sampled_from(sorted(CONFIGS)), st.sampled_from(sorted(POLICIES)))
def test_convolutions_equal_the_reference(case, config, policy):
    check(*case, CONFIGS[config], policy)


@settings(max_examples=25)
@given(
    st.integers(0, 2**32 - 1),
    st.tuples(st.integers(1, 40), st.integers(3, 12), st.integers(3, 12)),
    st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(0, 2)),
    st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(-2, 31)),
)
def test_pools_and_sums_equal_the_reference(seed, shape, pool, shifts):
    window, stride, pad = pool
    random = np.random.default_rng(seed)
    x = Tensor(name="x", shape=(1, *shape))
    y = Tensor(name="y", shape=x.shape)
    plane = ((each + 2 * pad - window) // stride + 1 for each in shape[1:])
    z = Tensor(name="z", shape=(1, shape[0], *plane))
    layers = (
        Add(
            name="sum",
            lhs="x",
            rhs="r",
            output="y",
            lhs_shift=shifts[0],
            rhs_shift=shifts[1],
            shift=shifts[2],
        ),
        MaxPool(
            name="pool",
            data="y",
            output="z",
            window=(window,) * 2,
            strides=(stride,) * 2,
            padding=(pad,) * 4,
        ),
    )
    tensors = (x, Tensor(name="r", shape=x.shape), y, z)
    region = Region(
        name="test", tensors=tensors, layers=layers, inputs=("x", "r"), outputs=("z", "y")
    )
    check(region, vta_regions.inputs(random, region))


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("extended", [False, True])
def test_a_region_of_all_layers_equals_the_reference(config, extended):
    random = np.random.default_rng(0)
    region = vta_regions.block(random)
    check(region, vta_regions.inputs(random, region), CONFIGS[config], extended=extended)


@pytest.mark.parametrize(
    "tile",
    [
        Tile(rows=1, columns=1),
        Tile(rows=1, columns=13),
        Tile(rows=13, columns=1, outputs=2),
        Tile(rows=13, columns=13, outputs=3, inputs=2),
    ],
)
def test_every_tile_gives_the_same(tile):
    random = np.random.default_rng(1)
    region = vta_regions.convolution(random, shape=(1, 30, 13, 13), outputs=40, residual=6)
    check(region, vta_regions.inputs(random, region), tiles={"conv": tile})


def test_a_depthwise_convolution_equals_the_reference():
    random = np.random.default_rng(2)
    region = vta_regions.convolution(random, shape=(1, 50, 9, 9), outputs=50, groups=50, stride=2)
    check(region, vta_regions.inputs(random, region))


def test_a_layer_that_does_not_fit_says_so():
    config = dataclasses.replace(CONFIGS["default"], log_inp_buff_size=8)
    region = vta_regions.convolution(
        np.random.default_rng(3), shape=(1, 16, 9, 9), outputs=16, kernel=7
    )
    with pytest.raises(UnsupportedError, match=r"layer 'conv'.*INP 49 of 8"):
        compile_region(region, config)


def test_sums_that_can_exceed_int32_say_so():
    random = np.random.default_rng(4)
    region = vta_regions.convolution(random, shape=(1, 16, 5, 5), outputs=4, residual=24)
    with pytest.raises(UnsupportedError, match=r"layer 'conv': sums of channel"):
        compile_region(region, CONFIGS["default"])
