"""Winograd's convolutions: which layers they compute, and that they are exact."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import relax, tirx
from tvm.target import Target

import backend_networks as networks
import plain_tvm
from tvm_quant.backend.cpu import lower
from tvm_quant.backend.cpu.contraction import Window
from tvm_quant.backend.cpu.isa import ISAS
from tvm_quant.backend.cpu.lower import LowerContractions
from tvm_quant.backend.cpu.tune import contraction_tiles
from tvm_quant.backend.cpu.winograd import F2, F4, Plan, is_exact, plan, transform_filter
from tvm_quant.ir import constant

R = relax.op
ISA = {isa.name: isa for isa in ISAS}
AVX2 = Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "x86-64-v3"})
LAST = {"data_layout": "NHWC", "out_layout": "NHWC"}
PROPERTY = settings(
    max_examples=5,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

#: Where x86 has them, pairs of 16 bits take these layers.
runs_pairs = pytest.mark.parametrize(
    "target",
    [
        pytest.param(Target(target), id=name, marks=pytest.mark.isa(*features))
        for name, target, features in networks.ISA_TARGETS
        if "x86" in target["mtriple"]
    ],
)


@st.composite
def layers(draw):
    """(data shape, weight shape, padding, rows of a strip): odd sizes and input channels."""
    inputs, outputs = draw(st.integers(1, 40)), 8 * draw(st.integers(1, 6))
    padding = draw(st.integers(0, 2))
    spatial = [draw(st.integers(max(1, 3 - 2 * padding), 19)) for _ in range(2)]
    shape = (draw(st.integers(1, 2)), inputs, *spatial)
    return shape, (outputs, inputs, 3, 3), padding, draw(st.integers(1, 5))


def with_plan(algorithm, rows: int):
    """Every 3x3 convolution is computed by the algorithm, with strips of this height."""
    chosen = Plan(algorithm=algorithm, rows=rows, cost=0.0)
    return mock.patch.object(lower, "plan", return_value=chosen)


def int32_conv(weights, shape, padding=1):
    """The sums of an integer convolution."""

    def body(_builder, x):
        return R.nn.conv2d(x, constant(weights), padding=padding, out_dtype="int32")

    return plain_tvm.build(body, x=("uint8", *shape))


def kernels(mod):
    return [func for _, func in mod.functions_items() if isinstance(func, tirx.PrimFunc)]


def lowered(isa, weight, dtype="uint8", size=28, **attrs):
    out = "float32" if dtype == "float32" else "int32"

    def body(_builder, x):
        return R.nn.conv2d(x, constant(weight), out_dtype=out, **{**LAST, **attrs})

    shape = (dtype, 1, size, size, weight.shape[1] * attrs.get("groups", 1))
    return LowerContractions(isa)(plain_tvm.build(body, x=shape))


def is_winograd(mod) -> bool:
    return any(gvar.name_hint == "winograd" for gvar in mod.get_global_vars())


@runs_pairs
@pytest.mark.parametrize("algorithm", [F2, F4], ids=["2x2", "4x4"])
@PROPERTY
@given(
    layers(), st.sampled_from(["uint8", "int8"]), st.integers(0, 100), st.sampled_from([64, 127])
)
def test_integers_equal_the_plain_build(target, algorithm, layer, dtype, zero_point, reach):
    shape, weight, padding, rows = layer
    attrs = {"padding": padding, "dtype": dtype, "zero_point": zero_point, "reach": reach}
    mod = networks.integer_conv(shape, weight, **attrs)
    data = networks.codes(shape, dtype)
    with with_plan(algorithm, rows):
        (result,) = networks.run(mod, data, target=target)
    np.testing.assert_array_equal(result, plain_tvm.run(mod, data)[0])


@PROPERTY
@given(layers())
def test_floats_are_close_to_the_plain_build(layer):
    shape, weight, padding, rows = layer
    mod = networks.float_conv(shape, weight, padding=padding)
    data = networks.normal(shape)
    with with_plan(F2, rows):
        (result,) = networks.run(mod, data)
    expected = plain_tvm.run(mod, data)[0]
    np.testing.assert_allclose(result, expected, rtol=0, atol=2e-6 * np.abs(expected).max() + 1e-5)


@runs_pairs
@pytest.mark.parametrize("algorithm", [F2, F4], ids=["2x2", "4x4"])
@pytest.mark.parametrize("code", [0, 255])
@pytest.mark.parametrize("weight", [-128, 127])
def test_the_largest_sums_are_exact(target, algorithm, code, weight):
    """All products of one sign, as many as `is_exact` lets pass: those of squares wrap around."""
    channels = 2**25 // (256 * 128 * 9) if algorithm is F4 else 1000
    weights = np.full((16, channels, 3, 3), weight, "int8")
    assert is_exact(np.moveaxis(weights, 1, -1), algorithm)
    data = np.full((1, channels, 6, 6), code, "uint8")
    data[0, ::2, 3, 2] = 255 - code
    mod = int32_conv(weights, data.shape)
    with with_plan(algorithm, 1):
        (result,) = networks.run(mod, data, target=target)
    np.testing.assert_array_equal(result, plain_tvm.run(mod, data)[0])


@runs_pairs
def test_sums_on_the_way_may_leave_32_bits(target):
    """The largest factors of data and filters, at one of the points, make larger sums."""
    corner = np.sign(F4.inputs(np.eye(6))[1])
    plane = np.where(np.outer(corner, corner) > 0, 255, 0).astype("uint8")
    data = np.tile(plane, (1, 400, 1, 1))
    weights = np.full((16, 400, 3, 3), 36, "int8")
    assert is_exact(np.moveaxis(weights, 1, -1), F4)
    factor = int(np.einsum("i,j,ij", *[F4.inputs(np.eye(6))[1]] * 2, plane.astype(int)))
    assert factor * 9 * 36 * 400 > 2**31
    mod = int32_conv(weights, data.shape, padding=0)
    with with_plan(F4, 1):
        (result,) = networks.run(mod, data, target=target)
    np.testing.assert_array_equal(result, plain_tvm.run(mod, data)[0])


@pytest.mark.parametrize(
    ("algorithm", "filter_rows", "input_rows", "output_rows"),
    [
        (
            F2,
            [[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]],
            [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
            [[1, 1, 1, 0], [0, 1, -1, -1]],
        ),
        (
            F4,
            [
                [1 / 4, 0, 0],
                [-1 / 6, -1 / 6, -1 / 6],
                [-1 / 6, 1 / 6, -1 / 6],
                [1 / 24, 1 / 12, 1 / 6],
                [1 / 24, -1 / 12, 1 / 6],
                [0, 0, 1],
            ],
            [
                [4, 0, -5, 0, 1, 0],
                [0, -4, -4, 1, 1, 0],
                [0, 4, -4, -1, 1, 0],
                [0, -2, -1, 2, 1, 0],
                [0, 2, -1, -2, 1, 0],
                [0, 4, 0, -5, 0, 1],
            ],
            [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
        ),
    ],
    ids=["2x2", "4x4"],
)
def test_it_is_the_published_algorithm(algorithm, filter_rows, input_rows, output_rows):
    """Lavin and Gray, sections 4.1 and 4.3, but for the fractions."""
    identity = np.eye(algorithm.size)
    np.testing.assert_array_equal(algorithm.inputs(identity), input_rows)
    whole = np.array(algorithm.filter)[:, 0] + np.array(algorithm.filter)[:, 2]
    fractions = np.array(filter_rows)[:, 0] + np.array(filter_rows)[:, 2]
    np.testing.assert_allclose(algorithm.filter * (fractions / whole)[:, None], filter_rows)
    results = np.stack(algorithm.results(identity)) / np.array(algorithm.scales)[:, None]
    np.testing.assert_allclose(results, output_rows * (fractions / whole))


@pytest.mark.parametrize("algorithm", [F2, F4], ids=["2x2", "4x4"])
def test_factors_of_a_filter_are_its_transform_in_both_directions(algorithm):
    weight = np.random.default_rng(0).integers(-128, 128, (3, 3, 3, 5)).astype("int8")
    rows = algorithm.filter
    expected = np.einsum("ai,oijc,bj->oabc", rows, weight.astype("int64"), rows)
    factors = transform_filter(weight, algorithm)
    np.testing.assert_array_equal(factors, expected.reshape(3, -1, 5))
    assert factors.dtype == np.int16


@pytest.mark.parametrize(
    ("isa", "dtype", "chosen"),
    [
        ("avx2", "uint8", True),
        ("avx512", "uint8", True),
        ("sse2", "int8", True),
        ("avx512vnni", "uint8", True),
        ("avxvnni", "uint8", True),
        ("neon", "int8", False),
        ("neon_i8mm", "uint8", False),
        ("avx512vnni", "float32", True),
        ("neon", "float32", True),
    ],
)
def test_it_is_chosen_where_its_products_are_cheaper(isa, dtype, chosen):
    """Not without an instruction for two products of 16 bits."""
    weight = np.ones((64, 64, 3, 3), "float32" if dtype == "float32" else "int8")
    assert is_winograd(lowered(ISA[isa], weight, dtype)) == chosen


@pytest.mark.parametrize(
    ("shape", "attrs"),
    [
        ((32, 32, 5, 5), {}),
        ((32, 32, 3, 1), {}),
        ((32, 32, 3, 3), {"strides": 2}),
        ((32, 32, 3, 3), {"dilation": 2}),
        ((32, 16, 3, 3), {"groups": 2}),
        ((32, 1, 3, 3), {}),
        ((8, 8000, 3, 3), {}),
        ((42, 32, 3, 3), {}),
    ],
    ids=[
        "5x5",
        "3x1",
        "strided",
        "dilated",
        "groups",
        "one channel",
        "sums beyond 32 bits",
        "part of a vector",
    ],
)
def test_other_layers_are_computed_directly(shape, attrs):
    assert not is_winograd(lowered(ISA["avx2"], np.full(shape, 127, "int8"), **attrs))


def test_the_cheapest_of_the_exact_algorithms_is_taken():
    """With the outputs of 4x4, 64 times too large, fewer products fit 32 bits."""
    window = Window(
        kernel=(3, 3), stride=(1, 1), dilation=(1, 1), pad_before=(1, 1), pad_after=(1, 1)
    )
    small, large = (np.full((64, 3, 3, 128), value, "int8") for value in (20, 127))

    def algorithm(isa, weight):
        geometry = {"window": window, "output": (28, 28)}
        found = plan(isa, dtype="uint8", dot=isa.dot("uint8"), weight=weight, **geometry)
        return found and found.algorithm

    assert algorithm(ISA["avx2"], small) is F4
    assert algorithm(ISA["avx2"], large) is F2
    assert algorithm(ISA["avx512vnni"], small) is F4
    assert algorithm(ISA["avx512vnni"], large) is None


def test_no_tile_of_a_direct_convolution_is_tuned_for_it():
    (kernel,) = kernels(lowered(ISA["avx2"], np.ones((32, 32, 3, 3), "int8")))
    assert contraction_tiles(kernel, ISA["avx2"]) == []


@pytest.mark.isa("avx2", "fma")
@pytest.mark.parametrize("batch", [1, 3])
def test_a_symbolic_batch(batch):
    rng = np.random.default_rng(0)
    weight = rng.integers(-127, 128, (16, 16, 3, 3)).astype("int8")
    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 16, 9, 9), "uint8"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            total = R.nn.conv2d(x, constant(weight), padding=1, out_dtype="int32")
            result = builder.emit_output(total)
        builder.emit_func_output(result)
    data = networks.codes((batch, 16, 9, 9))
    (result,) = networks.run(builder.get(), data, target=AVX2)
    np.testing.assert_array_equal(result, plain_tvm.run(builder.get(), data)[0])


@pytest.mark.parametrize("isa", ["avx2", "avx512vnni"])
def test_factors_that_no_cache_holds_need_many_windows(isa):
    """19 MB of them take longer to load than a direct convolution of 7x7 outputs."""
    weight = np.ones((512, 512, 3, 3), "int8")
    chosen = [is_winograd(lowered(ISA[isa], weight, size=size, padding=1)) for size in (7, 28)]
    assert chosen == [False, True]
