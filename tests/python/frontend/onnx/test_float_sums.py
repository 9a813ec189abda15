"""Convolutions between quantizers, summed in the order of ONNX Runtime."""

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from onnx_models import node, results
from quantized_models import contractions, onnxruntime_unoptimized, typed_model
from tvm_quant import quantize
from tvm_quant.errors import ConfigError
from tvm_quant.frontend import load
from tvm_quant.frontend.onnx.converters.float_sums import REASON
from tvm_quant.ir import bindings
from tvm_quant.ir.reasons import float_reasons
from tvm_quant.op import is_sequential_conv2d


def between_quantizers(shape, weight, *, scale=0.02, **attributes):
    """A convolution of float32 between two quantizers of uint8, whose steps are small."""
    weights = {
        "s": np.float32(scale),
        "zero": np.uint8(128),
        "w": weight,
        "bias": np.linspace(-1, 1, len(weight), dtype="float32"),
        "t": np.float32(0.01),
    }
    nodes = [
        node("QuantizeLinear", ["x", "s", "zero"], "q"),
        node("DequantizeLinear", ["q", "s", "zero"], "d"),
        node("Conv", ["d", "w", "bias"], "c", kernel_shape=weight.shape[2:], **attributes),
        node("QuantizeLinear", ["c", "t", "zero"], "codes"),
        node("DequantizeLinear", ["codes", "t", "zero"]),
    ]
    return typed_model(nodes, {"x": ("float", shape)}, weights, {"y": "float", "c": "float"})


@st.composite
def convolutions(draw):
    groups = draw(st.sampled_from([1, 1, 2]))
    inputs, outputs = (groups * draw(st.integers(1, 40)) for _ in range(2))
    kernel = draw(st.sampled_from([1, 2, 3, 5]))
    size = draw(st.integers(max(kernel, 2), 12))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    weight = rng.normal(size=(outputs, inputs // groups, kernel, kernel)).astype("float32")
    attributes = {
        "strides": [draw(st.integers(1, 2))] * 2,
        "pads": [draw(st.integers(0, kernel // 2))] * 4,
        "group": groups,
    }
    x = rng.normal(size=(1, inputs, size, size)).astype("float32")
    return x, weight / np.sqrt(inputs, dtype="float32"), attributes


@settings(max_examples=30)
@given(case=convolutions())
def test_sums_are_those_of_onnx_runtime_to_the_last_bit(case):
    x, weight, attributes = case
    source = between_quantizers(x.shape, weight, **attributes)
    mod, _ = load(source, rounding="onnxruntime")
    module = quantize(mod)
    if not any(is_sequential_conv2d(b.value) for b in bindings(module["main"])):
        assert len(contractions(module)) == 1  # a matrix and a vector: exact sums
        return
    for got, expected in zip(
        results(module, {"x": x}), onnxruntime_unoptimized(source, x=x), strict=True
    ):
        np.testing.assert_array_equal(got, expected)


def test_the_default_sums_integers():
    weight = np.full((4, 3, 3, 3), 0.1, "float32")
    source = between_quantizers((1, 3, 8, 8), weight)
    ways = [quantize(load(source, rounding=rounding)[0]) for rounding in (None, "exact")]
    assert not any(is_sequential_conv2d(b.value) for mod in ways for b in bindings(mod["main"]))
    tvm.ir.assert_structural_equal(*ways)


def test_the_reason_is_told():
    weight = np.full((4, 3, 3, 3), 0.1, "float32")
    mod, _ = load(between_quantizers((1, 3, 8, 8), weight), rounding="onnxruntime")
    assert REASON in float_reasons(quantize(mod)["main"]).values()


def test_kernels_with_an_order_of_their_own_keep_exact_sums():
    depthwise = np.full((4, 1, 3, 3), 0.1, "float32")
    mod, _ = load(between_quantizers((1, 4, 8, 8), depthwise, group=4), rounding="onnxruntime")
    calls = [b.value for b in bindings(mod["main"]) if isinstance(b.value, relax.Call)]
    assert not any(is_sequential_conv2d(call) for call in calls)
    assert not float_reasons(mod["main"])


def test_an_unknown_rounding_is_refused():
    weight = np.full((4, 3, 3, 3), 0.1, "float32")
    with pytest.raises(ConfigError, match="exact, onnxruntime"):
        load(between_quantizers((1, 3, 8, 8), weight), rounding="xnnpack")
