"""Quantized operators, one file each: what is read, and the integers that come of it."""

import numpy as np
import pytest

from plain_tvm import run_one
from tvm_quant import quantize
from tvm_quant.errors import ConfigError, FrontendError, UnsupportedError
from tvm_quant.frontend import load
from tvm_quant.ir import bindings, op_name
from tvm_quant.op import Convention, Kind, convention_of, is_simulated, kind_of, spec_of

pytest.importorskip("tflite")

from tflite_models import Tensor, one_operator

SETS = ("xnnpack", "builtin", "reference")

#: A quarter of these, as each arithmetic rounds it.
SUMS = [2, 6, 10, -2, -6, -10, 1, 3, -1, -3]
QUARTERS = {
    "gemmlowp": [1, 2, 3, -1, -2, -3, 1, 1, 0, -1],
    "ruy": [1, 2, 3, 0, -1, -2, 1, 1, 0, 0],
    "away": [1, 2, 3, -1, -2, -3, 0, 1, 0, -1],
    "float32": [0, 2, 2, 0, -2, -2, 0, 1, 0, -1],
}
RELU, RELU6 = 1, 3


def integers(model, rounding, *inputs):
    """Results of the quantized network, and no float32 tensor in it."""
    mod = quantize(load(model, rounding=rounding)[0])
    assert all(str(b.var.ty.dtype) != "float32" for b in bindings(mod["main"]))
    return run_one(mod, *inputs)


def convolution(activation=0, scale=4.0, zero_point=0, **weight):
    x = Tensor("x", (1, 10, 1, 1), scale=1.0)
    w = Tensor("w", (1, 1, 1, 1), **({"scale": 1.0, "data": [1]} | weight))
    b = Tensor("b", (1,), "int32", 1.0, data=[0])
    y = Tensor("y", (1, 10, 1, 1), scale=scale, zero_point=zero_point)
    return one_operator(
        "CONV_2D",
        [x, w, b],
        y,
        "Conv2DOptions",
        StrideH=1,
        StrideW=1,
        FusedActivationFunction=activation,
    )


def test_the_annotated_graph_has_integers_at_its_borders_alone():
    mod, params = load(convolution())
    assert params == {}
    values = [b.value for b in bindings(mod["main"])]
    names = [op_name(value) for value in values]
    assert names[0] == "relax.dequantize"
    assert names[-2] == "relax.quantize"  # the last is the name of the result
    kinds = [(kind_of(v), convention_of(v)) for v in values if is_simulated(v)]
    assert kinds == [
        (Kind.WEIGHT, Convention.BACKEND),
        (Kind.ACTIVATION, Convention.XNNPACK),
    ]
    computed = [b.var.ty.dtype for b in bindings(mod["main"])[:-2]]
    assert {str(dtype) for dtype in computed} == {"float32"}


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [("xnnpack", "float32"), ("builtin", "ruy"), ("reference", "gemmlowp")],
)
def test_a_convolution_rounds_as_its_kernel_set(rounding, expected):
    x = np.int8(SUMS).reshape(1, 10, 1, 1)
    assert integers(convolution(), rounding, x).ravel().tolist() == QUARTERS[expected]


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [("xnnpack", "float32"), ("builtin", "ruy"), ("reference", "away")],
)
def test_a_matrix_product_rounds_as_its_kernel_set(rounding, expected):
    x = Tensor("x", (10, 1), scale=1.0)
    w = Tensor("w", (1, 1), scale=1.0, data=[1])
    model = one_operator(
        "FULLY_CONNECTED", [x, w], Tensor("y", (10, 1), scale=4.0), "FullyConnectedOptions"
    )
    got = integers(model, rounding, np.int8(SUMS).reshape(10, 1))
    assert got.ravel().tolist() == QUARTERS[expected]


@pytest.mark.parametrize(
    ("rounding", "tie"),
    [("xnnpack", -58), ("builtin", -59), ("reference", -59)],  # of -58.5
)
def test_a_sum_of_two_scales(rounding, tie):
    tensors = [
        Tensor("a", (4,), scale=0.05, zero_point=3),
        Tensor("b", (4,), scale=0.02, zero_point=-10),
    ]
    model = one_operator("ADD", tensors, Tensor("y", (4,), scale=0.06, zero_point=5), "AddOptions")
    left, right = np.int8([10, -128, 127, 4]), np.int8([20, 127, 127, -9])
    assert integers(model, rounding, left, right).tolist() == [21, tie, 127, 6]


@pytest.mark.parametrize("rounding", SETS)
@pytest.mark.parametrize("zero_point", [0, 7])
def test_an_average_of_codes_rounds_away_from_zero(rounding, zero_point):
    totals = [10, 9, -10, -9, -6]
    x = np.zeros((5, 2, 2, 1), "int8")
    x[:, 0, 0, 0] = totals
    grid = {"scale": 0.5, "zero_point": zero_point}
    model = one_operator(
        "AVERAGE_POOL_2D",
        [Tensor("x", x.shape, **grid)],
        Tensor("y", (5, 1, 1, 1), **grid),
        "Pool2DOptions",
        Padding=1,
        StrideH=2,
        StrideW=2,
        FilterHeight=2,
        FilterWidth=2,
    )
    assert integers(model, rounding, x).ravel().tolist() == [3, 2, -3, -2, -2]


def test_an_average_does_not_count_padding():
    grid = {"scale": 0.5, "zero_point": 9}
    model = one_operator(
        "AVERAGE_POOL_2D",
        [Tensor("x", (1, 3, 1, 1), **grid)],
        Tensor("y", (1, 2, 1, 1), **grid),
        "Pool2DOptions",
        Padding=0,
        StrideH=2,
        StrideW=1,
        FilterHeight=2,
        FilterWidth=1,
    )
    x = np.int8([5, 8, -7]).reshape(1, 3, 1, 1)
    assert integers(model, "reference", x).ravel().tolist() == [7, -7]


@pytest.mark.parametrize(
    ("activation", "zero_point", "bounds"),
    [(RELU, -20, (-20, 127)), (RELU6, -20, (-20, -20 + 15)), (RELU6, 120, (120, 127))],
)
def test_a_fused_activation_is_bounds_of_codes(activation, zero_point, bounds):
    mod, _ = load(convolution(activation, scale=0.4, zero_point=zero_point))
    (spec,) = [
        spec_of(b.value)
        for b in bindings(mod["main"])
        if is_simulated(b.value) and kind_of(b.value) is Kind.ACTIVATION
    ]
    assert (spec.qmin, spec.qmax) == bounds


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_weights_with_zero_points(dtype):
    """Legacy files have one; a zero point for each channel is beyond the format, and the same."""
    rng = np.random.default_rng(0)
    low = 0 if dtype == "uint8" else -128
    w = rng.integers(low, low + 256, (5, 12)).astype(dtype)
    x = rng.integers(low, low + 256, (3, 12)).astype(dtype)
    zeros = 131 if dtype == "uint8" else np.array([0, 3, -7, 100, -128])
    scales = 0.02 if dtype == "uint8" else np.float32([0.02, 0.01, 0.03, 0.02, 0.04])
    model = one_operator(
        "FULLY_CONNECTED",
        [
            Tensor("x", x.shape, dtype, 0.1, 5),
            Tensor("w", w.shape, dtype, scales, zeros, data=w),
        ],
        Tensor("y", (3, 5), dtype, 2.0, 10),
        "FullyConnectedOptions",
    )
    steps = w.astype("int64") - np.reshape(zeros, (-1, 1))
    acc = (x.astype("int64") - 5) @ steps.T
    ratio = np.float32(0.1) * np.float32(scales) / np.float32(2.0)
    expected = np.clip(np.round(acc.astype("float32") * ratio) + 10, low, low + 255)
    np.testing.assert_array_equal(integers(model, "xnnpack", x), expected)


def test_a_matrix_product_flattens_its_data():
    w = np.arange(24).reshape(2, 12)
    model = one_operator(
        "FULLY_CONNECTED",
        [Tensor("x", (1, 2, 2, 3), scale=1.0), Tensor("w", w.shape, scale=1.0, data=w)],
        Tensor("y", (1, 2), scale=16.0),
        "FullyConnectedOptions",
    )
    x = np.arange(12, dtype="int8").reshape(1, 2, 2, 3)
    expected = np.round(x.reshape(1, 12).astype("float32") @ w.T / 16)
    np.testing.assert_array_equal(integers(model, None, x), np.clip(expected, -128, 127))


def test_a_bias_of_32_bits_is_kept():
    """No float32 holds it: 2**24 + 1 is the difference that shows."""
    x = Tensor("x", (1, 1), scale=1.0)
    w = Tensor("w", (1, 1), scale=1.0, data=[1])
    b = Tensor("b", (1,), "int32", 1.0, data=[(1 << 24) + 1])
    y = Tensor("y", (1, 1), "int16", 1024.0)
    model = one_operator("FULLY_CONNECTED", [x, w, b], y, "FullyConnectedOptions")
    mod = quantize(load(model, rounding="reference")[0])
    held = [
        value
        for binding in bindings(mod["main"])
        for arg in getattr(binding.value, "args", [])
        if (value := getattr(arg, "value", None)) is not None and hasattr(value, "numpy")
    ]
    assert any((1 << 24) + 1 in np.ravel(value.numpy()) for value in held)


@pytest.mark.parametrize("rounding", SETS)
def test_a_softmax_has_its_beta(rounding):
    x = np.int8([[0, 40, -20, 13]])
    model = one_operator(
        "SOFTMAX",
        [Tensor("x", (1, 4), scale=0.1)],
        Tensor("y", (1, 4), scale=1 / 256, zero_point=-128),
        "SoftmaxOptions",
        Beta=0.5,
    )
    got = run_one(quantize(load(model, rounding=rounding)[0]), x)
    exp = np.exp(x * 0.05)
    np.testing.assert_array_equal(got, np.round(exp / exp.sum() * 256) - 128)


def test_joined_tensors_of_two_scales():
    tensors = [Tensor("a", (4,), "uint8", 0.5, 10), Tensor("b", (4,), "uint8", 0.25, 0)]
    result = Tensor("y", (8,), "uint8", 0.5, 10)
    model = one_operator("CONCATENATION", tensors, result, "ConcatenationOptions", Axis=0)
    left, right = np.uint8([0, 10, 11, 255]), np.uint8([0, 4, 8, 255])
    got = run_one(quantize(load(model)[0]), left, right)
    assert got.tolist() == [0, 10, 11, 255, 10, 12, 14, 138]


def test_codes_of_real_numbers_at_ties():
    values = np.float32([0.5, 1.5, 2.5, -0.5, -2.5])
    model = one_operator(
        "QUANTIZE", [Tensor("x", (5,), "float32")], Tensor("y", (5,), scale=1.0), "QuantizeOptions"
    )
    even, away = [0, 2, 2, 0, -2], [1, 2, 3, -1, -3]
    for rounding, expected in zip(SETS, (even, even, away), strict=True):
        assert run_one(quantize(load(model, rounding=rounding)[0]), values).tolist() == expected


@pytest.mark.parametrize("scale", [0.0, -1.0, np.inf, np.nan, 1e-40, 1e38])
def test_a_scale_that_no_calibration_gives_is_refused(scale):
    x = Tensor("x", (1, 1), scale=1.0)
    w = Tensor("w", (1, 1), scale=scale, data=[1])
    y = Tensor("y", (1, 1), scale=1.0)
    model = one_operator("FULLY_CONNECTED", [x, w], y, "FullyConnectedOptions")
    with pytest.raises(FrontendError, match=r"Tensor 'w' has the scale .* expected"):
        load(model)


def test_a_zero_point_that_the_type_does_not_hold_is_refused():
    with pytest.raises(FrontendError, match=r"Tensor 'y' has the zero point 300"):
        load(convolution(zero_point=300))


def test_scales_that_fit_no_axis_are_refused():
    x = Tensor("x", (1, 3), scale=1.0)
    w = Tensor("w", (2, 3), scale=[1.0, 1.0, 1.0], data=np.zeros((2, 3)))
    model = one_operator(
        "FULLY_CONNECTED", [x, w], Tensor("y", (1, 2), scale=1.0), "FullyConnectedOptions"
    )
    with pytest.raises(FrontendError, match=r"'w' of shape \(2, 3\) has 3 scales along axis 0"):
        load(model)


def test_an_operator_without_conversion_is_refused_by_name():
    model = one_operator("CUMSUM", [Tensor("x", (4,), scale=1.0)], Tensor("y", (4,), scale=1.0))
    with pytest.raises(UnsupportedError, match="operator CUMSUM works on the quantized tensor 'x'"):
        load(model)


def test_kernel_sets_have_names(tmp_path):
    with pytest.raises(ConfigError, match=r"rounding is 'gemm'; expected one of xnnpack, builtin"):
        load(convolution(), rounding="gemm")
    path = tmp_path / "model.onnx"
    path.write_bytes(b"")
    with pytest.raises(ConfigError, match="expected"):
        load(path, rounding="tflite")
