"""Sums of accumulators and codes: nothing overflows, and little is rounded away."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

import backend_networks as networks
import plain_tvm
from realized import S8, U8, U16, Grid, dtypes, normal, realize, weight_grid
from tvm_quant.bench.layer_times import layer_times
from tvm_quant.ir import bindings, constant_value, op_name
from tvm_quant.op import QuantSpec, RequantizeMode, is_requantize

OP = relax.op
WEIGHT = QuantSpec(narrow=True)
COLUMNS = QuantSpec(narrow=True, axis=1)


# No overflow -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """What happens to a sum of two channels."""

    kind: str
    grid: Grid | None = None
    values: np.ndarray | None = None


@st.composite
def grids(draw, scale):
    spec = draw(st.sampled_from([U8, U8, S8, U16]))
    zero_point = 0 if spec.signed else draw(st.sampled_from([0, 1, 128, spec.qmax]))
    return Grid(scale, zero_point, spec)


@st.composite
def networks_of_sums(draw):
    """(grid of the data, weight codes (K, 2), weight scale (1, 2), steps)."""
    first = draw(grids(draw(st.floats(1e-3, 1.0))))
    depth = draw(st.sampled_from([1, 9, 576, 4608, 60000]))
    codes = np.array(draw(st.lists(st.sampled_from([127, -127, 1, 0]), min_size=2, max_size=2)))
    codes = np.where(np.arange(depth) % draw(st.integers(1, 3)) == 0, 1, -1)[:, None] * codes
    scale = np.float32([[2.0 ** draw(st.floats(-70, 2)) for _ in range(2)]])
    kinds = st.sampled_from(["add", "subtract", "add", "subtract", "constant", "relu", "factor"])
    return first, codes, scale, [draw(steps(kind)) for kind in draw(st.lists(kinds, max_size=4))]


@st.composite
def steps(draw, kind):
    if kind in ("add", "subtract"):
        return Step(kind, grid=draw(grids(2.0 ** draw(st.floats(-20, 6)))))
    if kind == "constant":
        size = 2.0 ** draw(st.floats(-20, 20))
        return Step(kind, values=np.float32([size, -size]))
    signs = draw(st.sampled_from([[1, 1], [1, -1], [-0.5, -3]]))
    return Step(kind, values=np.float32(signs))


def body_of(first, codes, scale, chain):
    weight = Grid(scale, 0, COLUMNS)

    def body(bb, x, *skips):
        rest = iter(skips)
        kernel = weight.quantize(bb, relax.const((codes * weight.scale).astype("float32")))
        value = bb.emit(OP.matmul(first.quantize(bb, x), kernel), "product")
        for step in chain:
            if step.grid is not None:
                operator = OP.add if step.kind == "add" else OP.subtract
                value = bb.emit(operator(value, step.grid.quantize(bb, next(rest))), "sum")
            elif step.kind == "relu":
                value = bb.emit(OP.nn.relu(value), "relu")
            else:
                operator = OP.add if step.kind == "constant" else OP.multiply
                value = bb.emit(operator(value, relax.const(step.values)), step.kind)
        return value

    return body


@settings(max_examples=100, derandomize=True, deadline=None)
@given(networks_of_sums(), st.lists(st.booleans(), min_size=5, max_size=5))
def test_no_integer_leaves_its_type_at_the_ends_of_all_grids(network, ends):
    """Data at the ends that make the sums largest, with either sign: every call stays exact."""
    first, codes, scale, chain = network
    skips = [step.grid for step in chain if step.grid is not None]
    signs = np.where(codes[:, 0] < 0, -1, 1) * (1 if ends[0] else -1)
    x = ends_of(first, signs > 0)[None]
    others = [
        np.broadcast_to(ends_of(grid, np.array(end)), (1, 2)).astype("float32")
        for grid, end in zip(skips, ends[1:], strict=False)
    ]
    shapes = {f"y{index}": (1, 2) for index in range(len(others))}
    mod = realize(body_of(first, codes, scale, chain), x=x.shape, **shapes)
    exact, size = in_float64(network, x, others)
    (result,) = evaluate(mod, x, *others)
    step = np.float64(first.scale) * scale.astype("float64")
    allowed = 12 * step * len(chain) + 3e-6 * size
    assert (np.abs(result - exact) <= allowed).all(), (result, exact, allowed)


def ends_of(grid, high):
    codes = np.where(high, grid.spec.qmax, grid.spec.qmin)
    return ((codes - grid.zero_point) * grid.scale.astype("float64")).astype("float32")


def in_float64(network, x, others):
    """The result without a rounding, and the largest numbers that the way has room for.

    The product is one of integers: terms that cancel leave nothing of the rounding of float64.
    """
    first, codes, scale, chain = network
    value = (first.steps(x) @ codes) * (np.float64(first.scale) * scale.astype("float64"))
    size, rest = np.abs(value), iter(others)
    for step in chain:
        if step.grid is not None:
            added = step.grid.steps(next(rest)) * np.float64(step.grid.scale)
            value = value + added if step.kind == "add" else value - added
            largest = max(np.abs(step.grid.spec.qmin - step.grid.zero_point), step.grid.spec.qmax)
            size = np.maximum(size, largest * np.float64(step.grid.scale))
        elif step.kind == "relu":
            value = np.maximum(value, 0)
        elif step.kind == "constant":
            value = value + step.values.astype("float64")
            size = np.maximum(size, np.abs(step.values))
        else:
            value, size = value * step.values, size * np.abs(step.values)
        size = np.maximum(size, np.abs(value))
    return value, size


INTEGER = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "negative": lambda a: -a,
    "left_shift": lambda a, b: a << b,
    "right_shift": lambda a, b: a >> b,
    "matmul": lambda a, b: a @ b,
    "divide": lambda a, b: a / b,
    "round": np.round,
}


def evaluate(mod, *inputs):
    """Results of `main`, with integers of any size; asserts that each fits into its type."""
    values = dict(zip(mod["main"].params, inputs, strict=True))

    def value(expr):
        if isinstance(expr, relax.Call):
            return compute(expr)
        known = constant_value(expr)
        if known is None:
            return values[expr]
        return known.astype(object) if known.dtype.kind in "iu" else known

    def compute(call):
        name, dtype = op_name(call).removeprefix("relax."), str(call.ty.dtype)
        if name == "clip":
            low, high = (float(bound.value) for bound in call.args[1:])
            return np.clip(value(call.args[0]), low, high)
        if name == "astype":
            result = value(call.args[0])
            return as_objects(result) if "int" in dtype else result.astype(dtype)
        result = np.asarray(INTEGER[name](*map(value, call.args)))
        if "int" in dtype:
            info = np.iinfo(dtype)
            assert info.min <= result.min() and result.max() <= info.max, (call, result)
        return result

    for binding in bindings(mod["main"]):
        values[binding.var] = value(binding.value)
    result = values[mod["main"].body.body]
    return [result]


def as_objects(array):
    return np.array([int(x) for x in array.ravel()], object).reshape(array.shape)


# Few bits lost -----------------------------------------------------------------------------------


def product_of(x, scale=0.5):
    """(grid of the data, weight, exact product): an accumulator with one scale."""
    first = Grid(0.03125, 117)
    weight = Grid(scale / 64, 0, WEIGHT)
    real = normal(x.shape[1], 5, scale=0.4 * scale, seed=1)
    exact = first.steps(x) @ weight.steps(real) * np.float64(first.scale) * weight.scale
    return first, weight, real, exact


def test_sums_of_one_accumulator_give_up_fraction_bits_before_they_need_64():
    x, y, z = normal(7, 64), normal(7, 5, seed=5), normal(7, 5, scale=1000, seed=6)
    first, weight, real, exact = product_of(x)
    near, far, shift = Grid(0.04, 90), Grid(30.0, 128), normal(5, scale=100)

    def body(bb, x, y, z):
        product = bb.emit(OP.matmul(first.quantize(bb, x), weight.quantize(bb, relax.const(real))))
        value = bb.emit(OP.add(product, near.quantize(bb, y)), "first")
        value = bb.emit(OP.subtract(value, far.quantize(bb, z)), "second")
        value = bb.emit(OP.add(value, relax.const(shift)), "third")
        return bb.emit(OP.add(value, near.quantize(bb, y)), "fourth")

    mod = realize(body, x=x.shape, y=y.shape, z=z.shape)
    found = dtypes(mod)
    assert {found[name] for name in ("first", "second", "fourth")} == {"int32"}
    exact = exact + 2 * near.steps(y) * np.float64(near.scale) + shift
    exact = exact - far.steps(z) * np.float64(far.scale)
    step = np.float64(first.scale) * np.float64(weight.scale)
    assert np.abs(plain_tvm.run_one(mod, x, y, z) - exact).max() < step


@pytest.mark.parametrize("mode", list(RequantizeMode))
@pytest.mark.parametrize("out", [Grid(0.5, 101), Grid(0.5, 0, S8)], ids=["u8", "s8"])
def test_requantize_takes_the_finer_scale_in_each_mode(mode, out):
    """Within half a step of the exact sum, and a trace of the next; shifts stay shifts."""
    x, y = normal(7, 64), normal(7, 5, scale=3, seed=5)
    first, weight, real, exact = product_of(x)
    skip = Grid(0.125, 90)

    def body(bb, x, y):
        product = bb.emit(OP.matmul(first.quantize(bb, x), weight.quantize(bb, relax.const(real))))
        return out.quantize(bb, bb.emit(OP.subtract(product, skip.quantize(bb, y))))

    mod = realize(body, mode=mode, x=x.shape, y=y.shape)
    (call,) = [b.value for b in bindings(mod["main"]) if is_requantize(b.value)]
    assert call.attrs["mode"] == mode
    exact = exact - skip.steps(y) * np.float64(skip.scale)
    low, high = out.real(out.spec.qmin), out.real(out.spec.qmax)
    error = np.abs(plain_tvm.run_one(mod, x, y) - np.clip(exact, low, high))
    assert error.max() <= 0.5001 * out.scale


@pytest.mark.parametrize("octave", [7, 0, -3])
def test_hardware_that_shifts_adds_exactly_what_is_powers_of_two_apart(octave):
    """The coarser of the two is shifted to the left, and nothing else."""
    x, y = normal(7, 64), normal(7, 5, scale=3, seed=5)
    first, weight = Grid(2.0**-5, 0, S8), Grid(2.0**-7, 0, WEIGHT)
    skip, out = Grid(2.0 ** (octave - 12), 0, S8), Grid(0.25, 0, S8)
    real = normal(64, 5, scale=0.1, seed=1)

    def body(bb, x, y):
        product = bb.emit(OP.matmul(first.quantize(bb, x), weight.quantize(bb, relax.const(real))))
        return out.quantize(bb, bb.emit(OP.add(product, skip.quantize(bb, y))))

    mod = realize(body, mode=RequantizeMode.SHIFT, x=x.shape, y=y.shape)
    calls = [b.value for b in bindings(mod["main"]) if isinstance(b.value, relax.Call)]
    shifts = [int(constant_value(c.args[1])) for c in calls if op_name(c) == "relax.left_shift"]
    assert shifts == ([abs(octave)] if octave else [])
    exact = first.steps(x) @ weight.steps(real) * 2.0**-12 + skip.steps(y) * float(skip.scale)
    codes = np.clip(np.floor(exact / 0.25 + 0.5), -127, 127)
    np.testing.assert_array_equal(plain_tvm.run_one(mod, x, y), codes * 0.25)


@pytest.mark.parametrize("octave", [5, 0])
def test_hardware_that_shifts_adds_codes_by_shifts(octave):
    x, y = normal(7, 5), normal(7, 5, scale=3, seed=5)
    left, right, out = Grid(2.0**-5, 0, S8), Grid(2.0 ** (octave - 5), 0, S8), Grid(0.25, 0, S8)

    def body(bb, x, y):
        total = bb.emit(OP.add(left.quantize(bb, x), right.quantize(bb, y)))
        return out.quantize(bb, total)

    mod = realize(body, mode=RequantizeMode.SHIFT, x=x.shape, y=y.shape)
    calls = [b.value for b in bindings(mod["main"]) if isinstance(b.value, relax.Call)]
    shifts = [int(constant_value(c.args[1])) for c in calls if op_name(c) == "relax.left_shift"]
    assert shifts == ([octave] if octave else [])
    exact = left.steps(x) * 2.0**-5 + right.steps(y) * float(right.scale)
    codes = np.clip(np.floor(exact / 0.25 + 0.5), -127, 127)
    np.testing.assert_array_equal(plain_tvm.run_one(mod, x, y), codes * 0.25)


@networks.runs_on
def test_the_kernels_of_the_cpu_equal_the_plain_build(target):
    mod, *inputs = residual_block()
    for ours, plain in zip(
        networks.run(mod, *inputs, target=target), plain_tvm.run(mod, *inputs), strict=True
    ):
        np.testing.assert_array_equal(ours, plain)


def test_a_residual_sum_is_computed_in_the_kernel_of_its_convolution():
    mod, x = residual_block()
    kernels = [row.what for row in layer_times(mod, {"x": x}, rounds=1)]
    assert len(kernels) == 4, kernels  # quantize, two convolutions, dequantize


def residual_block():
    """Two convolutions and a path around them, and an input; some channels have few free bits."""
    x = normal(1, 16, 9, 9)
    kernels = [normal(16, 16, 3, 3, scale=0.1, seed=seed) for seed in (1, 2)]
    kernels[1] *= np.float32([1.0] * 14 + [1e-3, 1e-6]).reshape(-1, 1, 1, 1)
    grids = [weight_grid(kernel, 0) for kernel in kernels]
    data, middle, out = Grid(0.03, 117), Grid(0.02, 0), Grid(0.04, 99)

    def body(bb, x):
        source = data.quantize(bb, x)
        value = source
        for kernel, grid in zip(kernels, grids, strict=True):
            weight = grid.quantize(bb, relax.const(kernel))
            value = bb.emit(OP.nn.conv2d(value, weight, padding=1))
            if kernel is kernels[0]:
                value = middle.quantize(bb, bb.emit(OP.nn.relu(value)))
        return out.quantize(bb, bb.emit(OP.add(value, source)))

    return realize(body, x=x.shape), x
