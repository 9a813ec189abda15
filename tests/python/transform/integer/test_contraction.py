"""Convolutions and matrix products: every element equals NumPy's int64."""

import numpy as np
import pytest
import tvm
from tvm import relax

from integer_oracle import convolve, convolve_transposed
from plain_tvm import build, run, run_one
from realized import S8, U16, Grid, dtypes, normal, realize, to_float32, weight_grid
from tvm_quant.op import QuantSpec, RequantizeMode, requantize_numpy
from tvm_quant.transform.realize import Realize

NN = relax.op.nn
OUT = Grid(0.11, 101)
CHANNELS_LAST = {"data_layout": "NHWC", "kernel_layout": "HWIO"}


def layer(call, weight, grid, kernel):
    """The layer's float result, and its result on the grid OUT."""

    def body(bb, x):
        acc = bb.emit(call(grid.quantize(bb, x), kernel.quantize(bb, relax.const(weight))), "acc")
        return acc, OUT.quantize(bb, acc)

    return body


def check(call, x, weight, grid, kernel, acc, scale, mode=RequantizeMode.FLOAT):
    mod = realize(layer(call, weight, grid, kernel), mode=mode, x=x.shape)
    real, quantized = run(mod, x)
    np.testing.assert_array_equal(real, to_float32(acc, scale))
    codes = requantize_numpy(
        acc,
        scale / np.float64(OUT.scale),
        OUT.zero_point,
        mode=mode,
        dtype="uint8",
        qmin=0,
        qmax=255,
    )
    assert len(np.unique(codes)) > 10
    np.testing.assert_array_equal(quantized, OUT.real(codes))
    return mod


CONVOLUTIONS = {
    "1d": (NN.conv1d, (2, 3, 19), (5, 3, 4), {"padding": [2, 1], "strides": 2}),
    "2d": (NN.conv2d, (2, 3, 9, 8), (5, 3, 3, 3), {"padding": 1}),
    "2d asymmetric padding": (NN.conv2d, (1, 3, 9, 8), (5, 3, 3, 3), {"padding": [0, 1, 2, 3]}),
    "2d stride and dilation": (
        NN.conv2d,
        (1, 3, 11, 12),
        (5, 3, 3, 3),
        {"padding": 2, "strides": [2, 3], "dilation": [2, 1]},
    ),
    "2d pointwise": (NN.conv2d, (1, 7, 6, 5), (5, 7, 1, 1), {}),
    "2d depthwise": (NN.conv2d, (1, 6, 9, 8), (6, 1, 3, 3), {"padding": 1, "groups": 6}),
    "2d depthwise multiplier": (NN.conv2d, (1, 3, 9, 8), (6, 1, 3, 3), {"groups": 3}),
    "2d grouped": (NN.conv2d, (1, 6, 9, 8), (4, 3, 3, 3), {"padding": 1, "groups": 2}),
    "3d": (NN.conv3d, (1, 2, 5, 6, 7), (3, 2, 3, 3, 3), {"padding": [1, 0, 1, 0, 1, 1]}),
}


@pytest.mark.parametrize("per_channel", [True, False], ids=["per channel", "per tensor"])
@pytest.mark.parametrize(
    ("operator", "data", "window", "attrs"), CONVOLUTIONS.values(), ids=CONVOLUTIONS
)
def test_convolutions_are_exact(operator, data, window, attrs, per_channel):
    x, weight = normal(*data), normal(*window, scale=0.3, seed=1)
    grid, kernel = Grid(0.03, 117), weight_grid(weight, 0 if per_channel else None)
    scale = np.float64(grid.scale) * kernel.scale.astype("float64")
    if per_channel:
        scale = scale.reshape(1, -1, *[1] * (len(data) - 2))
    acc = convolve(grid.steps(x), kernel.steps(weight), **attrs)
    mod = check(lambda a, b: operator(a, b, **attrs), x, weight, grid, kernel, acc, scale)
    assert dtypes(mod)["acc"] == "int32"


@pytest.mark.parametrize("mode", RequantizeMode)
def test_every_requantize_mode_is_exact(mode):
    x, weight = normal(1, 3, 9, 8), normal(5, 3, 3, 3, scale=0.3, seed=1)
    grid, kernel = Grid(2.0**-5, 117), weight_grid(weight, 0)
    kernel.scale = np.exp2(np.ceil(np.log2(kernel.scale)))
    acc = convolve(grid.steps(x), kernel.steps(weight))
    scale = np.float64(grid.scale) * kernel.scale.astype("float64").reshape(1, -1, 1, 1)
    used = RequantizeMode.FIXED_POINT if mode is RequantizeMode.SHIFT else mode
    mod = realize(layer(NN.conv2d, weight, grid, kernel), mode=mode, x=x.shape)
    codes = requantize_numpy(
        acc,
        scale / np.float64(OUT.scale),
        OUT.zero_point,
        mode=used,
        dtype="uint8",
        qmin=0,
        qmax=255,
    )
    np.testing.assert_array_equal(run(mod, x)[1], OUT.real(codes))


def test_channels_last():
    x, weight = normal(2, 9, 8, 3), normal(3, 3, 3, 5, scale=0.3, seed=1)
    grid, kernel = Grid(0.03, 117), weight_grid(weight, 3)
    acc = convolve(
        grid.steps(x).transpose(0, 3, 1, 2),
        kernel.steps(weight).transpose(3, 2, 0, 1),
        padding=[1, 0, 1, 2],
    ).transpose(0, 2, 3, 1)
    scale = np.float64(grid.scale) * kernel.scale.astype("float64").reshape(1, 1, 1, -1)
    check(
        lambda a, b: NN.conv2d(a, b, padding=[1, 0, 1, 2], **CHANNELS_LAST),
        x, weight, grid, kernel, acc, scale,
    )  # fmt: skip


TRANSPOSED = {
    "1d": (NN.conv1d_transpose, (2, 3, 7), (3, 5, 4), {"strides": 2, "padding": [1, 2]}),
    "2d": (NN.conv2d_transpose, (1, 3, 5, 6), (3, 5, 3, 3), {"strides": [2, 3], "padding": 1}),
    "2d output padding": (
        NN.conv2d_transpose,
        (1, 3, 5, 6),
        (3, 5, 3, 3),
        {"strides": 2, "padding": [1, 0, 1, 2], "output_padding": [1, 0]},
    ),
    "2d grouped": (NN.conv2d_transpose, (1, 6, 5, 6), (6, 2, 3, 3), {"groups": 3, "strides": 2}),
}


@pytest.mark.parametrize("per_channel", [True, False], ids=["per channel", "per tensor"])
@pytest.mark.parametrize(
    ("operator", "data", "window", "attrs"), TRANSPOSED.values(), ids=TRANSPOSED
)
def test_transposed_convolutions_are_exact(operator, data, window, attrs, per_channel):
    x, weight = normal(*data), normal(*window, scale=0.3, seed=1)
    groups = attrs.get("groups", 1)
    grid = Grid(0.03, 117)
    kernel = weight_grid(weight, 1, groups=groups) if per_channel else weight_grid(weight)
    scale = np.float64(grid.scale) * kernel.scale.astype("float64")
    if per_channel:
        first = scale[:: weight.shape[0] // groups]
        scale = first.reshape(1, -1, *[1] * (len(data) - 2))
    acc = convolve_transposed(grid.steps(x), kernel.steps(weight), **attrs)
    check(lambda a, b: operator(a, b, **attrs), x, weight, grid, kernel, acc, scale)


def test_a_grouped_transposed_weight_may_have_one_scale_for_all_groups():
    x, weight = normal(1, 4, 5, 6), normal(4, 3, 3, 3, scale=0.3, seed=1)
    grid, kernel = Grid(0.03, 117), weight_grid(weight, 1)
    assert kernel.scale.shape == (1, 3, 1, 1)
    acc = convolve_transposed(grid.steps(x), kernel.steps(weight), groups=2)
    scale = np.float64(grid.scale) * np.tile(kernel.scale.astype("float64"), (1, 2, 1, 1))
    check(lambda a, b: NN.conv2d_transpose(a, b, groups=2), x, weight, grid, kernel, acc, scale)


PRODUCTS = {
    "2d": ((6, 9), (9, 5), 1),
    "3d": ((2, 6, 9), (9, 5), 1),
    "4d": ((2, 3, 6, 9), (9, 5), 1),
    "a weight for each batch": ((2, 6, 9), (2, 9, 5), 2),
    "a weight for each batch, broadcast": ((3, 2, 6, 9), (2, 9, 5), 2),
    "weights of batches on one matrix": ((6, 9), (2, 9, 5), 2),
    "a weight in one piece": ((6, 9), (9, 5), None),
}


@pytest.mark.parametrize(("data", "window", "axis"), PRODUCTS.values(), ids=PRODUCTS)
def test_products_with_a_constant_are_exact(data, window, axis):
    x, weight = normal(*data), normal(*window, scale=0.3, seed=1)
    grid, kernel = Grid(0.03, 117), weight_grid(weight, axis)
    acc = grid.steps(x) @ kernel.steps(weight)
    scale = np.float64(grid.scale) * kernel.scale.astype("float64")
    check(relax.op.matmul, x, weight, grid, kernel, acc, scale)


@pytest.mark.parametrize(
    ("left", "right"), [((6, 9), (9, 5)), ((2, 6, 9), (2, 9, 5)), ((2, 3, 6, 9), (3, 9, 5))]
)
@pytest.mark.parametrize("second", [Grid(0.02, 0, S8), Grid(0.02, 99)], ids=["s8", "u8"])
def test_products_of_activations_are_exact(left, right, second):
    first = Grid(0.03, 117)
    x, y = normal(*left), normal(*right, seed=1)

    def body(bb, a, b):
        return bb.emit(relax.op.matmul(first.quantize(bb, a), second.quantize(bb, b)), "acc")

    acc = first.steps(x) @ second.steps(y)
    scale = np.float64(first.scale) * np.float64(second.scale)
    result = run_one(realize(body, a=left, b=right), x, y)
    np.testing.assert_array_equal(result, to_float32(acc, scale))


def test_a_constant_on_the_left_is_exact():
    x, weight = normal(9, 5), normal(6, 9, scale=0.3, seed=1)
    grid, kernel = Grid(0.03, 117), weight_grid(weight)

    def body(bb, x):
        operands = kernel.quantize(bb, relax.const(weight)), grid.quantize(bb, x)
        return bb.emit(relax.op.matmul(*operands), "acc")

    acc = kernel.steps(weight) @ grid.steps(x)
    scale = np.float64(grid.scale) * np.float64(kernel.scale)
    np.testing.assert_array_equal(run_one(realize(body, x=x.shape), x), to_float32(acc, scale))


def test_a_weight_with_a_zero_point_is_exact():
    x, weight = normal(6, 9), normal(9, 5, scale=0.3, seed=1)
    grid, kernel = Grid(0.03, 117), Grid(0.011, 88)
    acc = grid.steps(x) @ kernel.steps(weight)
    scale = np.float64(grid.scale) * np.float64(kernel.scale)
    check(relax.op.matmul, x, weight, grid, kernel, acc, scale)


@pytest.mark.parametrize("bits", [2, 4, 12, 16])
def test_other_widths_of_activations_are_exact(bits):
    x, weight = normal(1, 3, 9, 8), normal(5, 3, 3, 3, scale=0.3, seed=1)
    spec = QuantSpec(bits=bits, signed=False, symmetric=False)
    grid, kernel = Grid(8 / 2**bits, 2 ** (bits - 1) - 1, spec), weight_grid(weight, 0)
    acc = convolve(grid.steps(x), kernel.steps(weight), padding=1)
    scale = np.float64(grid.scale) * kernel.scale.astype("float64").reshape(1, -1, 1, 1)
    check(lambda a, b: NN.conv2d(a, b, padding=1), x, weight, grid, kernel, acc, scale)


def test_16_bit_activations_accumulate_in_64_bits_where_32_could_overflow():
    depth = 600
    x, weight = np.full((1, depth), 8.0, "float32"), np.ones((depth, 2), "float32")
    grid, kernel = Grid(8 / 65535, 0, U16), weight_grid(weight, 1)
    acc = grid.steps(x) @ kernel.steps(weight)
    assert acc.max() > 2**31

    def body(bb, x):
        operands = grid.quantize(bb, x), kernel.quantize(bb, relax.const(weight))
        return bb.emit(relax.op.matmul(*operands), "acc")

    mod = realize(body, x=x.shape)
    assert dtypes(mod)["acc"] == "int64"
    scale = np.float64(grid.scale) * kernel.scale.astype("float64")
    np.testing.assert_array_equal(run_one(mod, x), to_float32(acc, scale))


def test_codes_that_overflow_32_bits_before_their_zero_point_is_taken_off_are_exact():
    """128 * 127 * depth fits 32 bits, 255 * 127 * depth does not."""
    depth = 100_000
    grid, kernel = Grid(0.01, 128), weight_grid(np.ones((depth, 1), "float32"), 1)
    x = np.full((1, depth), 1.27, "float32")
    acc = grid.steps(x) @ kernel.steps(np.ones((depth, 1)))
    assert acc.max() < 2**31 < (grid.codes(x) * 127).sum()

    def body(bb, x):
        w = relax.const(np.ones((depth, 1), "float32"))
        return bb.emit(relax.op.matmul(grid.quantize(bb, x), kernel.quantize(bb, w)), "acc")

    mod = realize(body, x=x.shape)
    scale = np.float64(grid.scale) * kernel.scale.astype("float64")
    np.testing.assert_array_equal(run_one(mod, x), to_float32(acc, scale))


def test_dynamic_height_and_width_are_padded_once():
    height, width = (tvm.tirx.Var(name, "int64") for name in "hw")
    weight = normal(5, 3, 3, 3, scale=0.3, seed=1)
    grid, kernel = Grid(0.03, 117), weight_grid(weight, 0)
    body = layer(lambda a, b: NN.conv2d(a, b, padding=1), weight, grid, kernel)
    mod = realize(body, x=(1, 3, height, width))
    x = normal(1, 3, 9, 8)
    acc = convolve(grid.steps(x), kernel.steps(weight), padding=1)
    scale = np.float64(grid.scale) * kernel.scale.astype("float64").reshape(1, -1, 1, 1)
    np.testing.assert_array_equal(run(mod, x)[0], to_float32(acc, scale))


def test_a_dead_channel_stays_zero():
    x, weight = normal(1, 3, 9, 8), normal(5, 3, 3, 3, scale=0.3, seed=1)
    weight[2] = 0
    grid, kernel = Grid(0.03, 117), weight_grid(weight, 0)
    mod = realize(layer(NN.conv2d, weight, grid, kernel), x=x.shape)
    real, quantized = run(mod, x)
    assert not real[:, 2].any()
    assert not quantized[:, 2].any()


def test_data_with_a_scale_per_channel_is_convolved_in_float():
    x, weight = normal(1, 3, 9, 8), normal(5, 3, 3, 3, scale=0.3, seed=1)
    per_channel = QuantSpec(signed=False, symmetric=False, axis=1)
    grid = Grid(
        np.array([0.02, 0.03, 0.05]).reshape(1, 3, 1, 1), np.full((1, 3, 1, 1), 117), per_channel
    )
    kernel = weight_grid(weight, 0)
    body = layer(NN.conv2d, weight, grid, kernel)
    simulated, mod = build(body, x=x.shape), realize(body, x=x.shape)
    assert dtypes(mod)["acc"] == "float32"
    np.testing.assert_allclose(run(mod, x)[0], run(simulated, x)[0], rtol=1e-5, atol=1e-5)


def test_a_quantized_kernel_on_float_data_stays_in_float():
    weight = normal(5, 3, 3, 3)
    kernel = weight_grid(weight, 0)

    def body(bb, x):
        return bb.emit(NN.conv2d(x, kernel.quantize(bb, relax.const(weight))), "acc")

    x = normal(1, 3, 5, 5)
    simulated = build(body, x=x.shape)
    np.testing.assert_array_equal(run_one(Realize()(simulated), x), run_one(simulated, x))
