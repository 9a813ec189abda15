"""Averages: the integer sum is exact, the count divides the scale."""

import math

import numpy as np
import pytest
from tvm import relax

from integer_oracle import window_sums
from plain_tvm import run, run_one
from realized import S8, U16, Grid, dtypes, normal, realize, to_float32
from tvm_quant.op import requantize_numpy

OP = relax.op
GRID, OUT = Grid(0.03, 117), Grid(0.01, 101)


def check(call, x, acc, scale, grid=GRID):
    def body(bb, x):
        value = bb.emit(call(grid.quantize(bb, x)), "value")
        return value, OUT.quantize(bb, value)

    mod = realize(body, x=x.shape)
    real, quantized = run(mod, x)
    np.testing.assert_array_equal(real, to_float32(acc, scale))
    multiplier = scale / OUT.scale.astype("float64")
    codes = requantize_numpy(acc, multiplier, OUT.zero_point, dtype="uint8", qmin=0, qmax=255)
    np.testing.assert_array_equal(quantized, OUT.real(codes))
    return mod


@pytest.mark.parametrize(
    ("axes", "keepdims"),
    [([2, 3], True), ([2, 3], False), ([-1], False), ([1], True), (None, False)],
)
@pytest.mark.parametrize("grid", [GRID, Grid(0.03, 0, S8)], ids=["u8", "s8"])
def test_mean_is_exact(axes, keepdims, grid):
    x = normal(2, 3, 5, 7)
    reduced = tuple(axes) if axes else None
    acc = grid.steps(x).sum(axis=reduced, keepdims=keepdims)
    count = x.size // max(acc.size, 1)
    scale = np.float64(grid.scale) / count
    check(lambda v: OP.mean(v, axes, keepdims), x, acc, scale, grid)


POOLS = {
    "1d": (OP.nn.avg_pool1d, (2, 3, 11), [3], {"strides": 2}),
    "2d": (OP.nn.avg_pool2d, (2, 3, 9, 8), [3, 2], {"strides": [2, 3]}),
    "2d whole": (OP.nn.avg_pool2d, (2, 3, 9, 8), [9, 8], {}),
    "2d padded": (OP.nn.avg_pool2d, (2, 3, 9, 8), [3, 3], {"padding": [1, 0, 2, 1], "strides": 2}),
    "3d": (OP.nn.avg_pool3d, (1, 2, 5, 6, 7), [2, 3, 2], {"strides": [2, 1, 2]}),
    "3d padded": (OP.nn.avg_pool3d, (1, 2, 5, 6, 7), [2, 3, 2], {"padding": [1, 1, 0, 0, 1, 1]}),
}


@pytest.mark.parametrize(("pool", "shape", "window", "attrs"), POOLS.values(), ids=POOLS)
def test_average_pools_are_exact(pool, shape, window, attrs):
    x = normal(*shape)
    acc = window_sums(GRID.steps(x), window, **attrs)
    scale = np.float64(GRID.scale) / math.prod(window)
    mod = check(lambda v: pool(v, window, count_include_pad=True, **attrs), x, acc, scale)
    assert dtypes(mod)["value"] == "int32"


@pytest.mark.parametrize("attrs", [POOLS["2d padded"][3], {"padding": [2, 2, 2, 2]}])
def test_average_pools_that_leave_out_padding_divide_by_what_they_see(attrs):
    x = normal(2, 3, 9, 8)
    acc = window_sums(GRID.steps(x), [3, 3], **attrs)
    counts = window_sums(np.ones_like(x, "int64"), [3, 3], **attrs)[:1, :1]
    assert len(np.unique(counts)) > 2
    check(
        lambda v: OP.nn.avg_pool2d(v, (3, 3), count_include_pad=False, **attrs),
        x,
        acc,
        np.float64(GRID.scale) / counts,
    )


@pytest.mark.parametrize("include", [True, False])
def test_average_pools_of_channels_last_are_exact(include):
    x = normal(2, 9, 8, 3)
    attrs = {"padding": [1, 0, 2, 1], "strides": 2}
    first = x.transpose(0, 3, 1, 2)
    acc = window_sums(GRID.steps(first), [3, 3], **attrs).transpose(0, 2, 3, 1)
    counts = window_sums(np.ones_like(first, "int64"), [3, 3], **attrs).transpose(0, 2, 3, 1)
    scale = np.float64(GRID.scale) / (9 if include else counts[:1, :, :, :1])
    mod = check(
        lambda v: OP.nn.avg_pool2d(v, (3, 3), layout="NHWC", count_include_pad=include, **attrs),
        x,
        acc,
        scale,
    )
    assert dtypes(mod)["value"] == "int32"


@pytest.mark.parametrize(("layout", "shape"), [("NCHW", (2, 3, 5, 7)), ("NHWC", (2, 5, 7, 3))])
def test_global_average_pools_are_exact(layout, shape):
    x = normal(*shape)
    axes = (2, 3) if layout == "NCHW" else (1, 2)
    acc = GRID.steps(x).sum(axis=axes, keepdims=True)
    check(
        lambda v: OP.nn.adaptive_avg_pool2d(v, (1, 1), layout=layout),
        x,
        acc,
        np.float64(GRID.scale) / 35,
    )


def test_16_bit_sums_that_32_bits_cannot_hold_are_exact():
    grid = Grid(1e-4, 0, U16)
    x = np.full((1, 2, 200, 200), 6.5, "float32")

    def body(bb, x):
        return bb.emit(OP.mean(grid.quantize(bb, x), [2, 3]), "value")

    mod = realize(body, x=x.shape)
    acc = grid.steps(x).sum(axis=(2, 3))
    assert acc.max() > 2**31
    assert dtypes(mod)["value"] == "int64"
    expected = to_float32(acc, np.float64(grid.scale) / 40000)
    np.testing.assert_array_equal(run_one(mod, x), expected)


def test_8_bit_sums_that_overflow_before_their_zero_point_is_taken_off_are_exact():
    grid = Grid(0.01, 128)
    x = np.full((1, 1, 3000, 3000), 1.27, "float32")
    assert grid.steps(x).sum() < 2**31 < grid.codes(x).sum()

    def body(bb, x):
        return bb.emit(OP.mean(grid.quantize(bb, x), [2, 3]), "value")

    expected = to_float32(grid.steps(x).sum(axis=(2, 3)), np.float64(grid.scale) / 9_000_000)
    np.testing.assert_array_equal(run_one(realize(body, x=x.shape), x), expected)
