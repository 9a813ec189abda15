"""Operators whose results are sums of 32 bits, and quantizers whose range is found at run time."""

import numpy as np
import pytest
from onnx import helper

from onnx_models import node
from quantized_models import (
    contractions,
    float_weights,
    integer,
    onnxruntime_unoptimized,
    random_codes,
    random_weights,
    realized,
    typed_model,
)


def is_exact(source, **feeds):
    expected = onnxruntime_unoptimized(source, **feeds)
    for g, w in zip(realized(source, **feeds), expected, strict=True):
        assert g.dtype == w.dtype
        np.testing.assert_array_equal(g, w)


@pytest.mark.parametrize("zeros", ["none", "left", "both"])
def test_sums_of_products_beyond_what_a_float32_holds(rng, zeros):
    names = {"none": [], "left": ["az"], "both": ["az", "bz"]}[zeros]
    weights = {"b": random_codes(rng, (3000, 5), "int8"), "az": np.uint8(17), "bz": np.int8(-5)}
    a = np.where(rng.random((4, 3000)) < 0.9, 255, 3).astype("uint8")
    weights["b"][:, 0] = 127
    source = typed_model(
        [node("MatMulInteger", ["a", "b", *names])],
        {"a": ("uint8", a.shape)},
        {k: weights[k] for k in ("b", *names)},
        {"y": "int32"},
    )
    (got,) = realized(source, a=a)
    exact = (a.astype("int64") - (17 if "az" in names else 0)) @ (
        weights["b"].astype("int64") + (5 if "bz" in names else 0)
    )
    assert exact.max() > 2**24
    np.testing.assert_array_equal(got, exact)


def test_one_dimensional_convolution_pads_with_the_zero_point():
    weights = {"w": np.int8([[[1, 2, 1]]]), "z": np.uint8(128)}
    source = typed_model(
        [node("ConvInteger", ["x", "w", "z"], pads=[1, 1])],
        {"x": ("uint8", (1, 1, 4))},
        weights,
        {"y": "int32"},
    )
    x = np.uint8([[[130, 140, 120, 128]]])
    assert realized(source, x=x)[0].ravel().tolist() == [16, 18, -4, -8]


def dynamic(product, weight, shape):
    """ONNX Runtime's dynamic quantization of a layer."""
    quantize = helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])
    nodes = [
        quantize,
        product,
        node("Cast", ["acc"], "f", to=1),
        node("Mul", ["s", "ws"], "scale"),
        node("Mul", ["f", "scale"]),
    ]
    weights = {"w": weight, "ws": np.float32(0.02), "wz": np.int8(0)}
    return typed_model(nodes, {"x": ("float", shape)}, weights, {"y": "float"})


@pytest.mark.parametrize("offset", [0.0, 3.0, -3.0])
def test_a_matrix_product_whose_data_is_quantized_at_run_time(rng, offset):
    product = node("MatMulInteger", ["q", "w", "z", "wz"], "acc")
    source = dynamic(product, random_weights(rng, (40, 5)), (3, 40))
    x = rng.normal(offset, 1, size=(3, 40)).astype("float32")
    is_exact(source, x=x)
    is_exact(source, x=np.zeros_like(x))
    mod = integer(source)
    assert str(contractions(mod)[0].ty.dtype) == "int32" and not float_weights(mod)


def test_a_convolution_whose_data_is_quantized_at_run_time(rng):
    product = node("ConvInteger", ["q", "w", "z", "wz"], "acc", pads=[1, 1, 1, 1])
    source = dynamic(product, random_weights(rng, (4, 3, 3, 3)), (2, 3, 6, 6))
    is_exact(source, x=rng.normal(0, 1, size=(2, 3, 6, 6)).astype("float32"))


def test_codes_scale_and_zero_point_as_outputs(rng):
    quantize = helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])
    outputs = {"q": "uint8", "s": "float", "z": "uint8"}
    source = typed_model([quantize], {"x": ("float", (3, 40))}, {}, outputs)
    is_exact(source, x=rng.normal(0, 1, size=(3, 40)).astype("float32"))
