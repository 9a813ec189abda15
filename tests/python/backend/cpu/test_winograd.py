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
from tvm_quant.backend.cpu.isa import ISAS
from tvm_quant.backend.cpu.lower import LowerContractions
from tvm_quant.backend.cpu.tune import contraction_tiles
from tvm_quant.backend.cpu.winograd import sums_fit, transform_filter
from tvm_quant.ir import constant

R = relax.op
ISA = {isa.name: isa for isa in ISAS}
AVX2 = Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "x86-64-v3"})
LAST = {"data_layout": "NHWC", "out_layout": "NHWC"}
PROPERTY = settings(
    max_examples=8,
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
        if name in ("avx2", "sse2", "avx512")
    ],
)


@st.composite
def layers(draw):
    """(data shape, weight shape, padding, rows of a strip): odd sizes and channels."""
    inputs, outputs = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    padding = draw(st.integers(0, 2))
    spatial = [draw(st.integers(max(1, 3 - 2 * padding), 19)) for _ in range(2)]
    shape = (draw(st.integers(1, 2)), inputs, *spatial)
    return shape, (outputs, inputs, 3, 3), padding, draw(st.integers(1, 5))


def with_strips(rows: int):
    """Every layer that can be becomes a Winograd convolution, with strips of this height."""
    return mock.patch.object(lower, "strip_rows", return_value=rows)


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
@PROPERTY
@given(
    layers(), st.sampled_from(["uint8", "int8"]), st.integers(0, 100), st.sampled_from([64, 127])
)
def test_integers_equal_the_plain_build(target, layer, dtype, zero_point, reach):
    shape, weight, padding, rows = layer
    attrs = {"padding": padding, "dtype": dtype, "zero_point": zero_point, "reach": reach}
    mod = networks.integer_conv(shape, weight, **attrs)
    data = networks.codes(shape, dtype)
    with with_strips(rows):
        (result,) = networks.run(mod, data, target=target)
    np.testing.assert_array_equal(result, plain_tvm.run(mod, data)[0])


@PROPERTY
@given(layers())
def test_floats_are_close_to_the_plain_build(layer):
    shape, weight, padding, rows = layer
    mod = networks.float_conv(shape, weight, padding=padding)
    data = networks.normal(shape)
    with with_strips(rows):
        (result,) = networks.run(mod, data)
    expected = plain_tvm.run(mod, data)[0]
    np.testing.assert_allclose(result, expected, rtol=0, atol=2e-6 * np.abs(expected).max() + 1e-5)


@pytest.mark.isa("avx2", "fma")
@pytest.mark.parametrize("code", [0, 255])
@pytest.mark.parametrize("weight", [-128, 127])
def test_the_largest_sums_are_exact(code, weight):
    """All products of one sign: nothing cancels."""
    weights = np.full((16, 64, 3, 3), weight, "int8")
    data = np.full((1, 64, 6, 6), code, "uint8")

    def body(_builder, x):
        return R.nn.conv2d(x, constant(weights), padding=1, out_dtype="int32")

    mod = plain_tvm.build(body, x=("uint8", *data.shape))
    (result,) = networks.run(mod, data, target=AVX2)
    np.testing.assert_array_equal(result, plain_tvm.run(mod, data)[0])


def test_factors_of_a_filter_are_those_of_the_algorithm_times_four():
    weight = np.random.default_rng(0).integers(-128, 128, (3, 3, 3, 5)).astype("int8")
    half = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
    expected = 4 * np.einsum("ai,oijc,bj->oabc", half, weight.astype("float64"), half)
    np.testing.assert_array_equal(transform_filter(weight), expected.reshape(3, 16, 5))


@pytest.mark.parametrize(
    ("isa", "dtype", "chosen"),
    [
        ("avx2", "uint8", True),
        ("avx512", "uint8", True),
        ("sse2", "int8", True),
        ("avx512vnni", "uint8", False),
        ("avxvnni", "uint8", False),
        ("neon", "int8", False),
        ("avx512vnni", "float32", True),
        ("neon", "float32", True),
    ],
)
def test_it_is_chosen_where_its_products_are_cheaper(isa, dtype, chosen):
    """Not beside an instruction for four products of bytes, nor without one for two of 16 bits."""
    weight = np.ones((32, 32, 3, 3), "float32" if dtype == "float32" else "int8")
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
        ((8, 300, 3, 3), {}),
    ],
    ids=["5x5", "3x1", "strided", "dilated", "groups", "one channel", "sums beyond 32 bits"],
)
def test_other_layers_are_computed_directly(shape, attrs):
    assert not is_winograd(lowered(ISA["avx2"], np.full(shape, 127, "int8"), **attrs))


def test_sums_that_may_leave_32_bits_are_found():
    fitting, not_fitting = (np.full((1, 3, 3, n), 127, "int8") for n in (250, 300))
    assert sums_fit(transform_filter(fitting))
    assert not sums_fit(transform_filter(not_fitting))


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
