"""Sums, products, clamps and tables: every element equals NumPy's int64, or the exact table."""

import numpy as np
import pytest
from tvm import relax

from plain_tvm import build, run, run_one
from realized import S8, U8, U16, Grid, dtypes, normal, realize, to_float32, weight_grid
from tvm_quant.ir import bindings, op_name
from tvm_quant.op import (
    OP_SPECS,
    Convention,
    Kind,
    QuantSpec,
    Role,
    requantize_numpy,
    simulated_quantize,
    simulated_quantize_numpy,
)
from tvm_quant.transform.realize import Realize

OP = relax.op
SHAPE = (2, 3, 5, 4)
OUT = Grid(0.05, 101)


class Layer:
    """A pointwise convolution: an accumulator with one scale a channel, and its exact value."""

    def __init__(self, x, factor=1.0):
        self.weight = normal(3, x.shape[1], 1, 1, scale=0.5 * factor, seed=1)
        self.grid = Grid(0.03, 117)
        self.kernel = weight_grid(self.weight, 0)
        self.acc = np.einsum(
            "nchw,oc->nohw", self.grid.steps(x), self.kernel.steps(self.weight)[..., 0, 0]
        )
        self.scale = np.float64(self.grid.scale) * self.kernel.scale.astype("float64")
        self.scale = self.scale.reshape(1, -1, 1, 1)
        sums = np.abs(self.kernel.steps(self.weight)).sum(axis=1)
        self.bound = 255 * sums.reshape(1, -1, 1, 1)

    def emit(self, bb, x, name="conv"):
        kernel = self.kernel.quantize(bb, relax.const(self.weight))
        return bb.emit(OP.nn.conv2d(self.grid.quantize(bb, x), kernel), name)


def codes(acc, scale, out=OUT, low=None, high=None):
    qmin, qmax = out.spec.qmin, out.spec.qmax
    return requantize_numpy(
        acc,
        scale / out.scale.astype("float64"),
        out.zero_point,
        dtype=out.spec.dtype,
        qmin=qmin if low is None else low,
        qmax=qmax if high is None else high,
    )


def both(call):
    """Body that returns what `call` emits in float, and on the grid OUT."""

    def body(bb, *inputs):
        value = bb.emit(call(bb, *inputs), "value")
        return value, OUT.quantize(bb, value)

    return body


def integer(mod, *names):
    assert {name: dtypes(mod)[name] for name in names} == dict.fromkeys(names, "int32")


# Bias --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bias",
    [
        normal(1, 3, 1, 1, seed=3),
        normal(3, 1, 1, seed=3),
        np.float32(0.37),
        np.zeros((1, 3, 1, 1), "float32"),
        normal(1, 3, 5, 4, seed=3),
    ],
    ids=["(1, C, 1, 1)", "(C, 1, 1)", "()", "zero", "(1, C, H, W)"],
)
@pytest.mark.parametrize("side", ["right", "left"])
def test_a_bias_is_rounded_to_the_accumulator_and_added_exactly(bias, side):
    x = normal(*SHAPE)
    layer = Layer(x)

    def call(bb, x):
        operands = [layer.emit(bb, x), relax.const(bias)]
        return OP.add(*operands) if side == "right" else OP.add(*reversed(operands))

    acc = layer.acc + np.round(bias / layer.scale).astype("int64")
    real, quantized = run(realize(both(call), x=SHAPE), x)
    np.testing.assert_array_equal(real, to_float32(acc, layer.scale))
    np.testing.assert_array_equal(quantized, OUT.real(codes(acc, layer.scale)))


def test_a_bias_may_be_subtracted_or_subtracted_from():
    x, bias = normal(*SHAPE), normal(1, 3, 1, 1, seed=3)
    layer = Layer(x)
    steps = np.round(bias / layer.scale).astype("int64")
    for call, acc in (
        (lambda bb, x: OP.subtract(layer.emit(bb, x), relax.const(bias)), layer.acc - steps),
        (lambda bb, x: OP.subtract(relax.const(bias), layer.emit(bb, x)), steps - layer.acc),
    ):
        real, quantized = run(realize(both(call), x=SHAPE), x)
        np.testing.assert_array_equal(real, to_float32(acc, layer.scale))
        np.testing.assert_array_equal(quantized, OUT.real(codes(acc, layer.scale)))


def test_a_bias_that_32_bits_cannot_hold_is_added_in_64():
    x = normal(*SHAPE)
    layer = Layer(x, factor=1e-9)
    bias = np.array([5.0, -5.0, 0.0], "float32").reshape(1, 3, 1, 1)
    steps = np.round(bias / layer.scale).astype("int64")
    assert np.abs(steps).max() > 2**33
    acc = layer.acc + steps
    real, quantized = run(
        realize(both(lambda bb, x: OP.add(layer.emit(bb, x), relax.const(bias))), x=SHAPE), x
    )
    np.testing.assert_array_equal(real, to_float32(acc, layer.scale))
    np.testing.assert_array_equal(quantized, OUT.real(codes(acc, layer.scale)))
    np.testing.assert_allclose(real, np.broadcast_to(bias, real.shape), atol=1e-5)


def test_a_constant_beside_which_a_sum_is_lost_stands_alone():
    x, bias = normal(*SHAPE), np.float32([1.5, -1.5, 0.25]).reshape(1, 3, 1, 1)
    factor = np.float32([1e-38, 1.0, -1e-30]).reshape(1, 3, 1, 1)
    layer, lost = Layer(x), np.abs(factor) < 1

    def call(bb, x):
        return OP.add(
            bb.emit(OP.multiply(layer.emit(bb, x), relax.const(factor))), relax.const(bias)
        )

    real, quantized = run(realize(both(call), x=SHAPE), x)
    scale = np.where(lost, 1.0, layer.scale)
    acc = layer.acc + np.round(bias / scale).astype("int64")
    np.testing.assert_array_equal(real, np.where(lost, bias, to_float32(acc, scale)))
    np.testing.assert_array_equal(
        quantized, OUT.real(np.where(lost, OUT.codes(bias), codes(acc, scale)))
    )


def test_a_constant_is_added_to_codes_with_16_more_bits():
    x, constant = normal(*SHAPE), normal(1, 3, 1, 1, seed=3)
    grid = Grid(0.03, 117)

    def call(bb, x):
        return OP.add(grid.quantize(bb, x), relax.const(constant))

    scale = np.float64(grid.scale) / 65536
    acc = grid.steps(x) * 65536 + np.round(constant / scale).astype("int64")
    real, quantized = run(realize(both(call), x=SHAPE), x)
    np.testing.assert_array_equal(real, to_float32(acc, scale))
    np.testing.assert_array_equal(quantized, OUT.real(codes(acc, scale)))


@pytest.mark.parametrize("sign", [1, -1])
def test_a_constant_after_a_factor_of_codes_has_16_more_bits(sign):
    """A normalization of a quantized tensor: its shift is finer than the steps of the codes."""
    x, shift = normal(*SHAPE), normal(1, 3, 1, 1, seed=3)
    factor = np.float32([0.5, 2.0, sign * 0.7]).reshape(1, 3, 1, 1)
    grid = Grid(0.8, 3)

    def call(bb, x):
        scaled = bb.emit(OP.multiply(grid.quantize(bb, x), relax.const(factor)))
        return OP.add(scaled, relax.const(shift))

    scale = np.abs(np.float64(factor)) * np.float64(grid.scale) / 65536
    steps = grid.steps(x) * np.sign(factor).astype("int64")
    acc = steps * 65536 + np.round(shift / scale).astype("int64")
    real, quantized = run(realize(both(call), x=SHAPE), x)
    np.testing.assert_array_equal(real, to_float32(acc, scale))
    np.testing.assert_array_equal(quantized, OUT.real(codes(acc, scale)))


# Sums of two tensors -----------------------------------------------------------------------------


def fixed_point_sum(layer, skip, y, sign=1):
    """acc + sign * codes and its scale: both get the bits that 30 leave above the sum."""
    ratio = skip.scale.astype("float64") / layer.scale
    bits_of_codes = 7 if skip.spec.signed else 8
    shift = np.floor(np.log2((2.0 ** (30 - bits_of_codes) - 1) / ratio)).astype("int64")
    factor = sign * np.round(ratio * 2.0**shift).astype("int64")
    bound = layer.bound + max(skip.spec.qmax, -skip.spec.qmin) * (ratio + 0.5) + 1
    bits = np.minimum(30 - np.ceil(np.log2(bound)).astype("int64"), np.minimum(shift, 16))
    right = shift - bits
    half = np.where(right > 0, 2 ** np.maximum(right - 1, 0), 0)
    total = (layer.acc << bits) + ((skip.steps(y) * factor + half) >> right)
    return total, layer.scale / 2.0**bits


@pytest.mark.parametrize("order", ["conv + skip", "skip + conv", "conv - skip", "skip - conv"])
@pytest.mark.parametrize("skip", [Grid(0.04, 90), Grid(0.04, 0, S8)], ids=["u8", "s8"])
def test_a_residual_sum_is_exact_in_either_order(order, skip):
    x, y = normal(*SHAPE), normal(*SHAPE, seed=5)
    layer = Layer(x)

    def call(bb, x, y):
        conv, other = layer.emit(bb, x), skip.quantize(bb, y)
        operands = (conv, other) if order.startswith("conv") else (other, conv)
        return (OP.subtract if "-" in order else OP.add)(*operands)

    exact = layer.acc * layer.scale * (-1 if order == "skip - conv" else 1)
    exact = exact + skip.steps(y) * np.float64(skip.scale) * (-1 if order == "conv - skip" else 1)
    if order == "skip - conv":
        layer.acc = -layer.acc
    acc, scale = fixed_point_sum(layer, skip, y, -1 if order == "conv - skip" else 1)
    mod = realize(both(call), x=SHAPE, y=SHAPE)
    real, quantized = run(mod, x, y)
    np.testing.assert_array_equal(real, to_float32(acc, scale))
    np.testing.assert_array_equal(quantized, OUT.real(codes(acc, scale)))
    assert np.abs(acc * scale - exact).max() <= 0.01 * layer.scale.min()
    integer(mod, "conv", "value")


def test_codes_of_one_channel_are_broadcast_onto_the_accumulator():
    x, y, skip = normal(*SHAPE), normal(2, 3, 1, 1, seed=5), Grid(0.04, 90)
    layer = Layer(x)
    mod = realize(
        both(lambda bb, x, y: OP.add(layer.emit(bb, x), skip.quantize(bb, y))), x=SHAPE, y=y.shape
    )
    np.testing.assert_array_equal(run(mod, x, y)[0], to_float32(*fixed_point_sum(layer, skip, y)))


def test_codes_much_coarser_than_the_accumulator_are_added_in_64_bits():
    x, y, skip = normal(*SHAPE), normal(*SHAPE, scale=1e6, seed=5), Grid(2e4, 120)
    layer = Layer(x, factor=1e-3)
    mod = realize(
        both(lambda bb, x, y: OP.add(layer.emit(bb, x), skip.quantize(bb, y))), x=SHAPE, y=SHAPE
    )
    exact = layer.acc * layer.scale + skip.steps(y) * np.float64(skip.scale)
    np.testing.assert_allclose(run(mod, x, y)[0], exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("operator", [OP.add, OP.subtract])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Grid(0.03, 117), Grid(0.05, 90)),
        (Grid(0.03, 117), Grid(0.02, 0, S8)),
        (Grid(0.03, 0), Grid(3e-5, 255)),
        (Grid(0.03, 117), Grid(0.03, 117)),
    ],
    ids=["coarser", "signed", "far apart", "alike"],
)
def test_a_sum_of_codes_is_exact_on_a_common_scale(operator, first, second):
    x, y = normal(*SHAPE), normal(*SHAPE, scale=float(second.scale) * 30, seed=5)
    mod = realize(
        both(lambda bb, x, y: operator(first.quantize(bb, x), second.quantize(bb, y))),
        x=SHAPE,
        y=SHAPE,
    )
    largest = max(
        max(g.spec.qmax - int(g.zero_point), int(g.zero_point) - g.spec.qmin)
        for g in (first, second)
    )
    bits = 29 - int(np.ceil(np.log2(largest + 1)))
    scales = [grid.scale.astype("float64") for grid in (first, second)]
    scale = max(scales) / 2.0**bits
    factors = [int(np.round(s / scale)) for s in scales]
    sign = 1 if operator is OP.add else -1
    acc = first.steps(x) * factors[0] + sign * second.steps(y) * factors[1]
    real, quantized = run(mod, x, y)
    np.testing.assert_array_equal(real, to_float32(acc, scale))
    np.testing.assert_array_equal(quantized, OUT.real(codes(acc, scale)))
    exact = first.steps(x) * scales[0] + sign * second.steps(y) * scales[1]
    assert np.abs(acc * scale - exact).max() <= max(scales) * 1e-3
    integer(mod, "value")


def test_a_sum_of_16_bit_codes_keeps_their_precision():
    first, second = Grid(1e-4, 30000, U16), Grid(3.3e-5, 32000, U16)
    x, y = normal(*SHAPE), normal(*SHAPE, scale=0.3, seed=5)
    mod = realize(
        both(lambda bb, x, y: OP.add(first.quantize(bb, x), second.quantize(bb, y))),
        x=SHAPE,
        y=SHAPE,
    )
    exact = sum(g.steps(v) * np.float64(g.scale) for g, v in ((first, x), (second, y)))
    assert np.abs(run(mod, x, y)[0] - exact).max() < 1e-4 * 0.01
    assert dtypes(mod)["value"] == "int64"


def test_16_bit_codes_are_added_to_an_accumulator_with_their_precision():
    x, y, skip = normal(*SHAPE), normal(*SHAPE, seed=5), Grid(2e-4, 30000, U16)
    layer = Layer(x, factor=1e-2)
    mod = realize(
        both(lambda bb, x, y: OP.add(layer.emit(bb, x), skip.quantize(bb, y))), x=SHAPE, y=SHAPE
    )
    exact = layer.acc * layer.scale + skip.steps(y) * np.float64(skip.scale)
    assert np.abs(run(mod, x, y)[0] - exact).max() < 2e-4 * 0.01


# Products ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right"), [(SHAPE, SHAPE), (SHAPE, (2, 3, 1, 1)), ((1, 3, 1, 1), SHAPE)]
)
def test_a_product_of_codes_is_exact(left, right):
    x, y = normal(*left), normal(*right, seed=5)
    first, second = Grid(0.03, 117), Grid(0.05, 90)
    mod = realize(
        both(lambda bb, x, y: OP.multiply(first.quantize(bb, x), second.quantize(bb, y))),
        x=left,
        y=right,
    )
    acc = first.steps(x) * second.steps(y)
    scale = np.float64(first.scale) * np.float64(second.scale)
    real, quantized = run(mod, x, y)
    np.testing.assert_array_equal(real, to_float32(acc, scale))
    np.testing.assert_array_equal(quantized, OUT.real(codes(acc, scale)))
    integer(mod, "value")


def test_a_product_of_16_bit_codes_is_exact():
    x, y, grid = normal(*SHAPE), normal(*SHAPE, seed=5), Grid(1e-4, 12345, U16)
    mod = realize(
        both(lambda bb, x, y: OP.multiply(grid.quantize(bb, x), grid.quantize(bb, y))),
        x=SHAPE,
        y=SHAPE,
    )
    acc = grid.steps(x) * grid.steps(y)
    np.testing.assert_array_equal(run(mod, x, y)[0], to_float32(acc, np.float64(grid.scale) ** 2))
    assert dtypes(mod)["value"] == "int64"


@pytest.mark.parametrize(
    "factor",
    [
        np.float32(0.3),
        np.float32(-0.3),
        np.float32(0.0),
        np.array([0.5, 2.0, 0.7], "float32").reshape(1, 3, 1, 1),
        np.array([0.5, -2.0, 0.0], "float32").reshape(1, 3, 1, 1),
        np.array([0.5, -2.0, 0.0], "float32").reshape(3, 1, 1),
    ],
    ids=["positive", "negative", "zero", "per channel", "signs per channel", "of lower rank"],
)
def test_a_constant_factor_goes_into_scale_and_sign(factor):
    x = normal(*SHAPE)
    layer = Layer(x)

    def call(bb, x):
        return OP.multiply(layer.emit(bb, x), relax.const(factor))

    acc = layer.acc * np.sign(factor).astype("int64")
    scale = layer.scale * np.where(factor == 0, 1.0, np.abs(factor.astype("float64")))
    real, quantized = run(realize(both(call), x=SHAPE), x)
    np.testing.assert_array_equal(real, to_float32(acc, scale))
    np.testing.assert_array_equal(quantized, OUT.real(codes(acc, scale)))


# Clamps ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clamp", "low", "high"),
    [
        (OP.nn.relu, 0.0, np.inf),
        (lambda v: OP.clip(v, 0, 6), 0.0, 6.0),
        (lambda v: OP.clip(v, -1.5, 0.25), -1.5, 0.25),
        (lambda v: OP.nn.relu(OP.clip(v, -1, 1)), 0.0, 1.0),
        (lambda v: OP.clip(v, 2, 3), 2.0, 3.0),
    ],
    ids=["relu", "relu6", "clip", "relu of clip", "above zero"],
)
def test_a_clamp_of_an_accumulator_costs_nothing(clamp, low, high):
    x = normal(*SHAPE)
    layer = Layer(x)
    mod = realize(both(lambda bb, x: clamp(layer.emit(bb, x))), x=SHAPE)
    real, quantized = run(mod, x)
    exact = np.clip(to_float32(layer.acc, layer.scale), np.float32(low), np.float32(high))
    np.testing.assert_array_equal(real, exact)
    limits = np.clip(np.round(np.array([low, high]) / OUT.scale) + OUT.zero_point, 0, 255)
    narrowed = codes(layer.acc, layer.scale, low=int(limits[0]), high=int(limits[1]))
    np.testing.assert_array_equal(quantized, OUT.real(narrowed))
    types = dtypes(mod)
    on_integers = {
        op_name(b.value) for b in bindings(mod["main"]) if "int" in types.get(b.var.name, "")
    }
    assert not on_integers & {"relax.maximum", "relax.minimum"}


def test_bounds_per_channel_come_from_a_factor_after_the_clamp():
    x, factor = normal(*SHAPE), np.array([0.5, 2.0, 0.7], "float32").reshape(1, 3, 1, 1)
    layer = Layer(x)

    def call(bb, x):
        return OP.multiply(OP.clip(layer.emit(bb, x), -0.3, 0.5), relax.const(factor))

    real, quantized = run(realize(both(call), x=SHAPE), x)
    factor = factor.astype("float64")
    bounds = [(float(b) * factor).astype("float32") for b in (-0.3, 0.5)]
    scale = layer.scale * factor
    np.testing.assert_array_equal(real, np.clip(to_float32(layer.acc, scale), *bounds))
    limits = [np.round(b / OUT.scale) + OUT.zero_point for b in bounds]
    np.testing.assert_array_equal(
        quantized, OUT.real(np.clip(codes(layer.acc, scale).astype("int64"), *limits))
    )


def test_a_clamp_before_a_negative_factor_is_applied_in_whole_steps():
    x, factor = normal(*SHAPE), np.array([0.5, -2.0, -0.7], "float32").reshape(1, 3, 1, 1)
    layer = Layer(x)

    def call(bb, x):
        return OP.multiply(OP.clip(layer.emit(bb, x), -0.3, 0.5), relax.const(factor))

    low, high = (np.round(bound / layer.scale).astype("int64") for bound in (-0.3, 0.5))
    acc = np.clip(layer.acc, low, high) * np.sign(factor).astype("int64")
    real, _quantized = run(realize(both(call), x=SHAPE), x)
    np.testing.assert_array_equal(
        real, to_float32(acc, layer.scale * np.abs(factor.astype("float64")))
    )


@pytest.mark.parametrize("factor", [1.0, 1e-9], ids=["32 bits", "64 bits"])
def test_a_bias_after_a_clamp_is_added_to_whole_steps(factor):
    x, bias = normal(*SHAPE), np.array([0.5, -2.0, 5.0], "float32").reshape(1, 3, 1, 1)
    layer = Layer(x, factor=factor)

    def call(bb, x):
        moved = bb.emit(OP.add(layer.emit(bb, x), relax.const(bias)), "moved")
        return OP.add(OP.clip(moved, 0, 1), relax.const(bias))

    def steps(real):
        return np.round(real / layer.scale).astype("int64")

    acc = np.clip(layer.acc + steps(bias), 0, steps(1.0)) + steps(bias)
    real, quantized = run(realize(both(call), x=SHAPE), x)
    np.testing.assert_array_equal(real, to_float32(acc, layer.scale))
    np.testing.assert_array_equal(quantized, OUT.real(codes(acc, layer.scale)))


def test_a_clamp_that_cannot_be_reached_is_left_out():
    x, bias = normal(*SHAPE), normal(1, 3, 1, 1, seed=3)
    layer = Layer(x)

    def call(bb, x):
        return OP.add(OP.clip(layer.emit(bb, x), -1e9, 1e9), relax.const(bias))

    acc = layer.acc + np.round(bias / layer.scale).astype("int64")
    real = run(realize(both(call), x=SHAPE), x)[0]
    np.testing.assert_array_equal(real, to_float32(acc, layer.scale))


def test_a_clamp_of_codes_is_a_bound_of_the_next_grid():
    x, grid = normal(*SHAPE), Grid(0.03, 117)
    mod = realize(both(lambda bb, x: OP.nn.relu(grid.quantize(bb, x))), x=SHAPE)
    real, quantized = run(mod, x)
    exact = np.maximum(grid.real(grid.codes(x)), 0)
    np.testing.assert_array_equal(real, exact)
    expected = codes(grid.steps(x), np.float64(grid.scale), low=int(OUT.zero_point))
    np.testing.assert_array_equal(quantized, OUT.real(expected))


def test_a_clamp_of_codes_with_a_scale_per_channel():
    spec = QuantSpec(signed=False, symmetric=False, axis=1)
    scale = np.array([0.02, 0.03, 0.05]).reshape(1, 3, 1, 1)
    x, grid = normal(*SHAPE), Grid(scale, np.full((1, 3, 1, 1), 117), spec)
    mod = realize(both(lambda bb, x: OP.nn.relu(grid.quantize(bb, x))), x=SHAPE)
    real, quantized = run(mod, x)
    np.testing.assert_array_equal(real, np.maximum(grid.real(grid.codes(x)), 0))
    expected = codes(grid.steps(x), grid.scale.astype("float64"), low=int(OUT.zero_point))
    np.testing.assert_array_equal(quantized, OUT.real(expected))


# Tables ------------------------------------------------------------------------------------------


def constant(value):
    return relax.const(value, "float32")


FUNCTIONS = {
    "sigmoid": OP.sigmoid,
    "tanh": OP.tanh,
    "exp": OP.exp,
    "silu": OP.nn.silu,
    "gelu": OP.nn.gelu,
    "gelu_tanh": OP.nn.gelu_tanh,
    "leaky relu": lambda v: OP.nn.leakyrelu(v, 0.1),
    "softplus": lambda v: OP.nn.softplus(v),
    "abs": OP.abs,
    "square": OP.square,
    "rsqrt of abs": lambda v: OP.rsqrt(OP.add(OP.abs(v), constant(1.0))),
    "power": lambda v: OP.power(v, constant(2.0)),
    "constant to the power": lambda v: OP.power(constant(2.0), v),
    "reciprocal": lambda v: OP.divide(constant(1.0), OP.add(OP.square(v), constant(0.5))),
    "maximum": lambda v: OP.maximum(v, constant(0.5)),
    "x sigmoid x": lambda v: OP.multiply(v, OP.sigmoid(v)),
    "hard swish": lambda v: OP.multiply(
        v, OP.multiply(OP.clip(OP.add(v, constant(3.0)), 0, 6), constant(1 / 6))
    ),
    "twice": lambda v: OP.add(v, v),
    "nothing": lambda v: OP.subtract(v, v),
    "1 - x": lambda v: OP.subtract(constant(1.0), OP.tanh(v)),
}
GRIDS = {
    "u8": Grid(0.03, 117),
    "s8": Grid(0.03, 0, S8),
    "u4": Grid(0.5, 7, QuantSpec(bits=4, signed=False, symmetric=False)),
    "u16": Grid(1e-4, 30000, U16),
}


@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
@pytest.mark.parametrize("function", ["sigmoid", "hard swish", "x sigmoid x"])
def test_tables_hold_codes_of_every_grid(function, grid):
    check_table(FUNCTIONS[function], grid)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_functions_of_one_tensor_are_tables(function):
    check_table(function, GRIDS["u8"])


def check_table(function, grid):
    x = normal(*SHAPE, scale=2.0)

    def body(bb, x):
        value = bb.emit(function(grid.quantize(bb, x)), "value")
        return value, OUT.quantize(bb, value, name="out")

    simulated, mod = build(body, x=SHAPE), realize(body, x=SHAPE)
    (real, quantized), (float_real, _) = run(mod, x), run(simulated, x)
    np.testing.assert_allclose(real, float_real, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(
        quantized, simulated_quantize_numpy(real, OUT.scale, OUT.zero_point, OUT.spec)
    )
    operators = {op_name(b.value) for b in bindings(mod["main"])}
    functions = {name for name, spec in OP_SPECS.items() if spec.role is Role.POINTWISE}
    assert "relax.take" in operators
    assert not operators & (functions - {"relax.divide"})  # the input is divided by its scale


def test_a_function_that_is_infinite_at_a_code_stays_finite():
    x = np.zeros(SHAPE, "float32")
    mod = realize(
        both(lambda bb, x: OP.divide(constant(1.0), GRIDS["u8"].quantize(bb, x))), x=SHAPE
    )
    real, quantized = run(mod, x)
    assert np.isfinite(real).all()
    assert (quantized == OUT.real(255)).all()


def test_a_function_of_an_accumulator_is_computed_in_float():
    x = normal(*SHAPE)
    layer = Layer(x)
    mod = realize(both(lambda bb, x: OP.sigmoid(layer.emit(bb, x))), x=SHAPE)
    expected = 1 / (1 + np.exp(-to_float32(layer.acc, layer.scale)))
    np.testing.assert_allclose(run(mod, x)[0], expected, rtol=1e-6)


def test_a_constant_of_higher_rank_leaves_the_call_in_float():
    x, grid = normal(2, 3), Grid(0.03, 117)

    def body(bb, x):
        one = relax.const(np.full((1, 1, 1), 0.5, "float32"))
        return bb.emit(OP.multiply(OP.sigmoid(grid.quantize(bb, x)), one), "value")

    expected = run_one(build(body, x=x.shape), x)
    np.testing.assert_allclose(run_one(realize(body, x=x.shape), x), expected, rtol=1e-6)


def test_a_constant_larger_than_the_tensor_leaves_the_call_in_float():
    x, grid = normal(2, 3, 1), Grid(0.03, 117)
    large = normal(2, 3, 4, seed=2)
    for operator in (OP.add, OP.multiply):

        def body(bb, x, operator=operator):
            return bb.emit(operator(grid.quantize(bb, x), relax.const(large)), "value")

        expected = run_one(build(body, x=x.shape), x)
        np.testing.assert_allclose(run_one(realize(body, x=x.shape), x), expected, rtol=1e-6)


@pytest.mark.parametrize("operator", [OP.add, OP.multiply, OP.maximum])
def test_an_operand_in_float_leaves_the_call_in_float(operator):
    x, y, grid = normal(*SHAPE), normal(*SHAPE, seed=2), Grid(0.03, 117)

    def body(bb, x, y):
        return bb.emit(operator(grid.quantize(bb, x), y), "value")

    simulated = build(body, x=SHAPE, y=SHAPE)
    np.testing.assert_array_equal(run_one(Realize()(simulated), x, y), run_one(simulated, x, y))


def test_a_table_that_only_adds_is_an_addition():
    """From signed to unsigned codes, as networks of 8-bit inputs begin."""
    signed = Grid(0.5, -3, QuantSpec(symmetric=False))
    unsigned = Grid(0.5, 125, U8)

    def body(bb, x):
        real = bb.emit(OP.dequantize(x, relax.const(np.float32(0.5)), relax.const(-3, "int8")))
        call = simulated_quantize(
            real, 0.5, 125, spec=U8, kind=Kind.ACTIVATION, convention=Convention.FLOAT32
        )
        q = bb.emit(call)
        grid = relax.const(np.float32(0.5)), relax.const(125, "uint8")
        return bb.emit(OP.quantize(q, *grid, out_dtype="uint8"))

    x = np.arange(-128, 128).astype("int8")
    mod = realize(body, x=("int8", 256))
    assert "relax.take" not in {op_name(b.value) for b in bindings(mod["main"])}
    np.testing.assert_array_equal(run_one(mod, x), unsigned.codes(signed.real(x)))
