"""QONNX: Quant, BipolarQuant and Trunc, by the vectors of their documents and by an oracle."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from onnx_models import model, node
from quantized_models import (
    assert_means,
    contractions,
    custom,
    float_weights,
    grid,
    imports,
    integer,
    quantizer,
    realized,
    simulated,
)
from tvm_quant.errors import FrontendError
from tvm_quant.frontend import load
from tvm_quant.frontend.onnx.converters.quantized.quant import QuantizerAttributeWarning
from tvm_quant.ir import bindings, constant_value
from tvm_quant.op import Convention, convention_of, is_simulated, scale_of, spec_of

X = np.float32([-3, -1, -0.875, -0.5, -0.25, -0.125, 0.125, 0.25, 0.375, 0.625, 1, 3])


def one_quantizer(x, parameters, **attributes):
    source = model([quantizer("x", **attributes)], {"x": x.shape}, parameters)
    return imports(source, qonnx__custom_op__general=1)


def values(x, parameters, **attributes):
    """Of the annotated graph and of integers, which must be the same."""
    source = one_quantizer(x, parameters, **attributes)
    (first,), (second,) = simulated(source, x=x), realized(source, x=x)
    np.testing.assert_array_equal(first, second)
    return first


def codes(x, parameters, **attributes):
    zero = parameters["q_zero"]
    return (values(x, parameters, **attributes) / parameters["q_scale"] + zero).tolist()


@pytest.mark.parametrize(
    ("signed", "narrow", "zero", "expected"),
    [
        (1, 0, 0, [-8, -4, -4, -2, -1, 0, 0, 1, 2, 2, 4, 7]),
        (1, 1, 0, [-7, -4, -4, -2, -1, 0, 0, 1, 2, 2, 4, 7]),
        (0, 0, 0, [0, 0, 0, 0, 0, 0, 0, 1, 2, 2, 4, 12]),
        (0, 0, 3, [0, 0, 0, 1, 2, 2, 4, 4, 4, 6, 7, 15]),
    ],
)
def test_codes_of_four_bits(signed, narrow, zero, expected):
    assert codes(X, grid(0.25, zero), signed=signed, narrow=narrow) == expected


def test_an_unsigned_narrow_range_lacks_the_largest_code():
    assert codes(X, grid(0.125), signed=0, narrow=1)[-1] == 14


def test_values_around_a_zero_point():
    expected = [-0.75] * 3 + [-0.5, -0.25, -0.25, 0.25, 0.25, 0.25, 0.75, 1, 3]
    assert values(X, grid(0.25, 3), signed=0).tolist() == expected


TABLE = {
    "ROUND": [6, 2, 2, 1, 0, 0, -1, -2, -2, -6],
    "HALF_EVEN": [6, 2, 2, 1, 0, 0, -1, -2, -2, -6],
    "CEIL": [6, 3, 2, 2, 1, 0, -1, -1, -2, -5],
    "FLOOR": [5, 2, 1, 1, 0, -1, -2, -2, -3, -6],
    "UP": [6, 3, 2, 2, 1, -1, -2, -2, -3, -6],
    "DOWN": [5, 2, 1, 1, 0, 0, -1, -1, -2, -5],
    "HALF_UP": [6, 3, 2, 1, 1, -1, -1, -2, -3, -6],
    "HALF_DOWN": [5, 2, 2, 1, 0, 0, -1, -2, -2, -5],
}


@pytest.mark.parametrize("mode", TABLE)
def test_rounding_modes_in_any_letter_case(mode):
    x = np.float32([5.5, 2.5, 1.6, 1.1, 0.5, -0.5, -1.1, -1.6, -2.5, -5.5])
    for name in (mode, mode.lower()):
        assert values(x, grid(1, bits=8), rounding_mode=name).tolist() == TABLE[mode]


def test_one_signed_bit_is_the_sign_without_rounding():
    x = np.float32([-9, -0.2, -0.1, 0, 0.2, 9])
    assert values(x, grid(0.5, bits=1)).tolist() == [-0.5, -0.5, -0.5, 0.5, 0.5, 0.5]
    assert values(x, grid(0.5, 0, 1), signed=0).tolist() == [0, 0, 0, 0, 0, 0.5]


def test_a_zero_point_that_is_no_whole_number():
    x = np.linspace(-3, 3, 101, dtype="float32")
    assert_means(one_quantizer(x, grid(0.25, 2.5, 4), signed=0), x=x)


@settings(max_examples=25)
@given(
    bits=st.integers(1, 8),
    signed=st.integers(0, 1),
    narrow=st.integers(0, 1),
    mode=st.sampled_from(sorted(TABLE)),
    scale=st.sampled_from([0.25, 0.1, 3.0]),
    zero=st.integers(0, 3),
)
def test_every_quantizer_means_what_the_oracle_says(bits, signed, narrow, mode, scale, zero):
    if zero >= 2 ** (bits - signed):
        zero = 0
    x = np.linspace(-20, 20, 401, dtype="float32") * np.float32(scale)
    attributes = {"signed": signed, "narrow": narrow, "rounding_mode": mode}
    assert_means(one_quantizer(x, grid(scale, zero, bits), **attributes), x=x)


def test_missing_attributes_are_assumed_with_a_warning():
    bare = custom("Quant", ["x", "q_scale", "q_zero", "q_bits"], name="bare")
    source = model([bare], {"x": X.shape}, grid(0.25))
    with pytest.warns(QuantizerAttributeWarning, match="'bare' lacks the attribute 'signed'; 1"):
        load(source)


def test_a_negative_scale_turns_the_codes_around():
    x = np.linspace(-3, 3, 61, dtype="float32")
    assert_means(one_quantizer(x, grid(-0.25, 1)), x=x)
    bipolar = model([custom("BipolarQuant", ["x", "s"])], {"x": x.shape}, {"s": np.float32(-2)})
    assert_means(bipolar, x=x)


def test_bipolar_values_are_plus_one_from_zero_on():
    x = np.float32([-3, -0.0, 0, 1e-30, 5])
    source = model([custom("BipolarQuant", ["x", "s"])], {"x": x.shape}, {"s": np.float32(0.5)})
    assert simulated(source, x=x)[0].tolist() == [-0.5, 0.5, 0.5, 0.5, 0.5]
    assert realized(source, x=x)[0].tolist() == [-0.5, 0.5, 0.5, 0.5, 0.5]


# How parameters are given ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "domain", ["qonnx.custom_op.general", "onnx.brevitas", "finn.custom_op.general"]
)
@pytest.mark.parametrize("operator", ["Quant", "IntQuant"])
def test_domains_and_names_of_the_quantizer_without_an_import(domain, operator):
    inputs = ["x", "q_scale", "q_zero", "q_bits"]
    quant = custom(operator, inputs, domain=domain, signed=1, narrow=1, rounding_mode="ROUND")
    source = model([quant], {"x": X.shape}, grid(0.25))
    assert simulated(source, x=X)[0][0] == -7 * 0.25


def test_a_quantizer_of_a_foreign_domain_is_refused():
    quant = custom("Quant", ["x", "q_scale", "q_zero", "q_bits"], domain="com.microsoft", name="q")
    with pytest.raises(FrontendError, match=r"Quant of domain 'com\.microsoft': node 'q'"):
        load(model([quant], {"x": X.shape}, grid(0.25)))


def test_parameters_as_constant_nodes_and_int64():
    nodes = [
        helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(value)))
        for name, value in (("q_scale", np.float32(0.25)), ("q_zero", 0), ("q_bits", 4))
    ]
    source = model([*nodes, quantizer("x")], {"x": X.shape})
    assert simulated(source, x=X)[0][0] == -2


def test_scales_of_channels_broadcast_as_numpy_does():
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 4)).astype("float32")
    parameters = grid(np.float32([0.1, 0.2, 0.3]).reshape(1, 3, 1, 1), bits=5)
    assert_means(one_quantizer(x, parameters), x=x)


@pytest.mark.parametrize(
    ("parameters", "attributes", "message"),
    [
        (grid(0.25, bits=0), {}, "bit width is 0; expected a whole number, 1 to 32"),
        (grid(0.25, bits=2.5), {}, r"bit width is 2\.5"),
        (grid(0.25, bits=64), {}, "bit width is 64"),
        (grid(0.25, bits=np.nan), {}, "bit width is nan"),
        (grid(0.25, bits=[4, 8]), {}, "bit width differs by element"),
        (grid(0.0), {}, "scale holds 0.0; expected positive"),
        (grid(np.inf), {}, "scale holds inf"),
        (grid(np.nan), {}, "scale holds nan"),
        (grid([1, 2, 3]), {}, r"scale of shape \(3,\) does not broadcast to the data"),
        (grid(0.25, 1e6), {}, "zero point 1000000.0 lies outside"),
        (grid(0.25), {"rounding_mode": "NEAREST"}, "rounding mode is 'NEAREST'; expected one of"),
    ],
)
def test_nonsense_is_refused_with_the_node_and_what_was_expected(parameters, attributes, message):
    source = one_quantizer(X, parameters, **attributes)
    source.graph.node[0].name = "layer1/quant"
    with pytest.raises(FrontendError, match=rf"'layer1/quant' \(Quant.*{message}"):
        load(source)


def test_a_scale_that_is_computed_is_named():
    nodes = [node("Abs", ["x"], "s"), custom("Quant", ["x", "s", "q_zero", "q_bits"])]
    with pytest.raises(FrontendError, match=r"its scale \('s'\) is computed at run time"):
        load(model(nodes, {"x": X.shape}, grid(0.25)))


def test_a_missing_parameter_is_named():
    quant = custom("Quant", ["x", "q_scale", "q_zero"], signed=1, narrow=0)
    with pytest.raises(FrontendError, match=r"its bit width \(input 3\) is missing"):
        load(model([quant], {"x": X.shape}, grid(0.25)))


# Weights -----------------------------------------------------------------------------------------


def layer(weight, scale, *between, product, x=(2, 6)):
    """Quant(x) times quantized weights, with nodes between the weights and the product."""
    weights = {"w": weight, **grid(scale, bits=4, prefix="w"), **grid(0.1, bits=8)}
    nodes = [
        quantizer("x", "qx"),
        quantizer("w", "qw", prefix="w", narrow=1),
        *between,
        product,
    ]
    return model(nodes, {"x": x}, weights)


WEIGHT = np.random.default_rng(1).normal(size=(5, 6)).astype("float32")
SCALE = np.abs(WEIGHT).max(axis=1, keepdims=True) / 7


@pytest.mark.parametrize("kind", ["transpose", "gemm"])
def test_scales_of_rows_land_on_the_columns_of_the_result(kind):
    if kind == "transpose":
        between = [node("Transpose", ["qw"], "wt", perm=[1, 0])]
        source = layer(WEIGHT, SCALE, *between, product=node("MatMul", ["qx", "wt"]))
    else:
        source = layer(WEIGHT, SCALE, product=node("Gemm", ["qx", "qw"], transB=1))
    x = np.random.default_rng(2).normal(size=(2, 6)).astype("float32")
    assert_means(source, x=x)
    mod = integer(source)
    (product,) = contractions(mod)
    assert str(product.ty.dtype) == "int32" and not float_weights(mod)
    expected = np.rint(WEIGHT / SCALE).astype("int8").T
    np.testing.assert_array_equal(constant_value(product.args[1]), expected)


def test_weights_with_scales_along_the_summed_axis_stay_in_float():
    scale = np.abs(WEIGHT).max(axis=0, keepdims=True) / 7
    source = layer(WEIGHT, scale, product=node("Gemm", ["qx", "qw"], transB=1))
    x = np.random.default_rng(2).normal(size=(2, 6)).astype("float32")
    assert_means(source, x=x)
    assert {str(call.ty.dtype) for call in contractions(integer(source))} == {"float32"}


@pytest.mark.parametrize("bias_scale", [0.1 * 0.25, 0.03])
def test_a_quantized_bias_at_the_scale_of_the_sum_or_one_of_its_own(bias_scale):
    weights = {
        "w": np.float32(np.rint(WEIGHT * 4) / 4),
        "b": np.float32([1, -2, 0.5, 0.3, 9]),
        **grid(0.25, bits=6, prefix="w"),
        **grid(0.1, bits=8),
        **grid(bias_scale, bits=12, prefix="b"),
    }
    nodes = [
        *(quantizer("x", "qx"), quantizer("w", "qw", prefix="w"), quantizer("b", "qb", prefix="b")),
        node("Gemm", ["qx", "qw", "qb"], transB=1),
    ]
    x = np.random.default_rng(2).normal(size=(2, 6)).astype("float32")
    assert_means(model(nodes, {"x": (2, 6)}, weights), x=x)


def test_quantizers_of_a_file_want_the_codes_of_real_arithmetic():
    mod, _ = load(one_quantizer(X, grid(0.25)))
    (call,) = [b.value for b in bindings(mod["main"]) if is_simulated(b.value)]
    assert convention_of(call) is Convention.EXACT
    assert scale_of(call)[0] == np.float32(0.25) and spec_of(call).bits == 4


# Trunc -------------------------------------------------------------------------------------------


def truncated(x, parameters, version, **attributes):
    names = list(parameters)
    source = model(
        [custom("Trunc", ["x", *names], **attributes)],
        {"x": x.shape},
        {name: np.float32(value) for name, value in parameters.items()},
    )
    imports(source, qonnx__custom_op__general=version)
    assert_means(source, x=x)
    return simulated(source, x=x)[0].tolist()


LONG = np.float32([0, 3, 7.5, 24, -1, -24, -300, 511])
DROPPED = [0, 0, 0, 0, -1, -1, -5, 7]


def test_the_first_version_keeps_the_scale():
    parameters = {"s": 1, "z": 0, "before": 10, "after": 4}
    assert truncated(LONG, parameters, 1, rounding_mode="FLOOR") == DROPPED


def test_the_second_version_takes_a_new_scale():
    parameters = {"s": 1, "z": 0, "before": 10, "out": 64, "after": 4}
    got = truncated(LONG, parameters, 2, rounding_mode="FLOOR", signed=1, narrow=0)
    assert got == [64 * code for code in DROPPED]


def test_the_second_version_clamps():
    x = np.float32([1, 7.9, -0.5, 31, -64, 100])
    parameters = {"s": 0.5, "z": 0, "before": 8, "out": 8, "after": 4}
    got = truncated(x, parameters, 2, rounding_mode="FLOOR", signed=1, narrow=0)
    assert got == [8 * code for code in [0, 1, -1, 3, -8, 7]]


@pytest.mark.parametrize("mode", ["FLOOR", "CEIL", "ROUND", "DOWN"])
def test_truncation_around_a_zero_point(mode):
    x = np.arange(-100, 100, dtype="float32") / 2
    first = {"s": 0.5, "z": 4, "before": 8, "after": 5}
    truncated(x, first, 1, rounding_mode=mode)
    second = {"s": 0.5, "z": 4, "before": 8, "out": 4, "after": 5}
    truncated(x, second, 2, rounding_mode=mode, signed=1, narrow=0)


def test_an_average_of_integers_that_is_cut_off():
    """How Brevitas writes it: the mean, times the size of the window, less its low bits."""
    parameters = {"ts": 0.1, "tz": 0, "before": 6, "after": 4, "size": 4}
    weights = {name: np.float32(value) for name, value in parameters.items()}
    nodes = [
        quantizer("x", "q"),
        node("AveragePool", ["q"], "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Mul", ["p", "size"], "m"),
        custom("Trunc", ["m", "ts", "tz", "before", "after"], rounding_mode="FLOOR"),
    ]
    x = np.random.default_rng(0).normal(0, 0.5, size=(2, 3, 8, 8)).astype("float32")
    (expected,) = assert_means(model(nodes, {"x": x.shape}, {**weights, **grid(0.1)}), x=x)
    assert np.unique(np.rint(expected / 0.1)).size > 4
