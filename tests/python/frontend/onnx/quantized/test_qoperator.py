"""ONNX Runtime's operators on codes, against ONNX Runtime."""

import numpy as np
import pytest
from onnx import helper

from onnx_models import node
from quantized_models import (
    contractions,
    float_weights,
    integer,
    onnxruntime_unoptimized,
    realized,
    typed_model,
)

RNG = np.random.default_rng(0)
MS = "com.microsoft"


def microsoft(operator, inputs, output="y", **attributes):
    return helper.make_node(operator, inputs, [output], domain=MS, **attributes)


def is_exact(source, **feeds):
    """Every element is ONNX Runtime's."""
    (expected,) = onnxruntime_unoptimized(source, **feeds)
    (got,) = realized(source, **feeds)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


def random_codes(shape, kind):
    limits = np.iinfo(kind)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(kind)


def grid(name, scale, zero, kind):
    return {f"{name}s": np.float32(scale), f"{name}z": np.asarray(zero, kind)}


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("group", [1, 3])
def test_convolution(kind, per_channel, group):
    weight = random_codes((6, 3 // group, 3, 3), "int8")
    scale = RNG.uniform(0.001, 0.01, 6).astype("float32") if per_channel else np.float32(0.004)
    weights = {
        **grid("x", 0.03, 10, kind),
        "w": weight,
        "ws": scale,
        "wz": np.zeros(scale.shape, "int8"),
        **grid("y", 0.11, 20, kind),
        "b": RNG.integers(-9999, 9999, 6).astype("int32"),
    }
    inputs = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"]
    conv = node("QLinearConv", inputs, pads=[1, 1, 0, 1], strides=[2, 1], group=group)
    source = typed_model([conv], {"x": (kind, (2, 3, 9, 9))}, weights, {"y": kind})
    is_exact(source, x=random_codes((2, 3, 9, 9), kind))
    mod = integer(source)
    assert str(contractions(mod)[0].ty.dtype) == "int32" and not float_weights(mod)


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("per_column", [False, True])
def test_matrix_product(kind, per_column):
    scale = RNG.uniform(0.001, 0.01, 7).astype("float32") if per_column else np.float32(0.004)
    zero = np.zeros(scale.shape, "int8") if per_column else np.int8(3)
    weights = {
        **grid("a", 0.03, 10, kind),
        "b": random_codes((20, 7), "int8"),
        "bs": scale,
        "bz": zero,
        **grid("y", 0.07, 20, kind),
    }
    product = node("QLinearMatMul", ["a", "as", "az", "b", "bs", "bz", "ys", "yz"])
    source = typed_model([product], {"a": (kind, (50, 20))}, weights, {"y": kind})
    is_exact(source, a=random_codes((50, 20), kind))


def test_product_of_two_tensors_of_the_network():
    weights = {
        **grid("a", 0.03, 10, "uint8"),
        **grid("b", 0.02, 100, "uint8"),
        **grid("y", 0.5, 20, "uint8"),
    }
    product = node("QLinearMatMul", ["a", "as", "az", "b", "bs", "bz", "ys", "yz"])
    inputs = {"a": ("uint8", (5, 20)), "b": ("uint8", (20, 6))}
    source = typed_model([product], inputs, weights, {"y": "uint8"})
    is_exact(source, a=random_codes((5, 20), "uint8"), b=random_codes((20, 6), "uint8"))


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("alpha", [1.0, 0.7])
def test_gemm(turned, alpha):
    shape = (7, 20) if turned else (20, 7)
    weights = {
        **grid("a", 0.03, 10, "uint8"),
        "b": random_codes(shape, "int8"),
        "bs": RNG.uniform(0.001, 0.01, 7).astype("float32"),
        "bz": np.zeros(7, "int8"),
        "c": RNG.integers(-9999, 9999, 7).astype("int32"),
        **grid("y", 0.07, 20, "uint8"),
    }
    inputs = ["a", "as", "az", "b", "bs", "bz", "c", "ys", "yz"]
    gemm = microsoft("QGemm", inputs, transB=turned, alpha=alpha)
    source = typed_model([gemm], {"a": ("uint8", (50, 20))}, weights, {"y": "uint8"})
    is_exact(source, a=random_codes((50, 20), "uint8"))


@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_two_operands(operator, kind):
    weights = {
        **grid("a", 0.03, 10, kind),
        **grid("b", 0.021, 100, kind),
        **grid("y", 0.043, 20, kind),
    }
    call = microsoft(operator, ["a", "as", "az", "b", "bs", "bz", "ys", "yz"])
    shape = (64, 100)
    source = typed_model([call], dict.fromkeys("ab", (kind, shape)), weights, {"y": kind})
    is_exact(source, a=random_codes(shape, kind), b=random_codes(shape, kind))


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize(
    ("operator", "scale", "zero", "attributes"),
    [
        ("QLinearSigmoid", 1 / 256, 0, {}),
        ("QLinearLeakyRelu", 0.05, 30, {"alpha": 0.1}),
        ("QLinearSoftmax", 1 / 256, 0, {"axis": -1, "opset": 13}),
    ],
)
def test_functions(operator, scale, zero, attributes, kind):
    zero = zero - (128 if kind == "int8" and zero == 0 else 0)
    weights = {**grid("x", 0.05, 3, kind), **grid("y", scale, zero, kind)}
    call = microsoft(operator, ["x", "xs", "xz", "ys", "yz"], **attributes)
    source = typed_model([call], {"x": (kind, (256, 8))}, weights, {"y": kind})
    x = np.arange(256).astype(kind)[:, None].repeat(8, 1) if "Soft" not in operator else None
    is_exact(source, x=random_codes((256, 8), kind) if x is None else x)


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("last", [0, 1])
def test_global_average_pool(kind, last):
    weights = {**grid("x", 0.05, 3, kind), **grid("y", 0.013, 7, kind)}
    call = microsoft("QLinearGlobalAveragePool", ["x", "xs", "xz", "ys", "yz"], channels_last=last)
    shape = (40, 7, 5, 16) if last else (40, 16, 7, 5)
    source = typed_model([call], {"x": (kind, shape)}, weights, {"y": kind})
    is_exact(source, x=random_codes(shape, kind))


def test_average_pool():
    weights = {**grid("x", 0.05, 3, "uint8"), **grid("y", 0.043, 7, "uint8")}
    call = microsoft(
        "QLinearAveragePool", ["x", "xs", "xz", "ys", "yz"], kernel_shape=[3, 3], strides=[2, 2]
    )
    source = typed_model([call], {"x": ("uint8", (4, 8, 9, 9))}, weights, {"y": "uint8"})
    x = random_codes((4, 8, 9, 9), "uint8")
    (expected,) = onnxruntime_unoptimized(source, x=x)
    (got,) = realized(source, x=x)
    assert np.abs(got.astype(int) - expected).max() <= 1
    assert (got != expected).mean() < 0.001


def test_concat():
    weights = {
        **grid("y", 0.04, 20, "uint8"),
        **grid("a", 0.04, 20, "uint8"),
        **grid("b", 0.03, 9, "uint8"),
    }
    call = microsoft("QLinearConcat", ["ys", "yz", "a", "as", "az", "b", "bs", "bz"], axis=1)
    inputs = {"a": ("uint8", (2, 100)), "b": ("uint8", (2, 256))}
    source = typed_model([call], inputs, weights, {"y": "uint8"})
    every = np.arange(256).astype("uint8")[None].repeat(2, 0)
    is_exact(source, a=random_codes((2, 100), "uint8"), b=every)
