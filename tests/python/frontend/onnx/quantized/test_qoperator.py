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
    random_codes,
    random_weights,
    realized,
    typed_model,
)

MS = "com.microsoft"


def microsoft(operator, inputs, output="y", **attributes):
    return helper.make_node(operator, inputs, [output], domain=MS, **attributes)


def is_exact(source, **feeds):
    """Every element is ONNX Runtime's."""
    (expected,) = onnxruntime_unoptimized(source, **feeds)
    (got,) = realized(source, **feeds)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


def grid(name, scale, zero, kind):
    return {f"{name}s": np.float32(scale), f"{name}z": np.asarray(zero, kind)}


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("group", [1, 3])
def test_convolution(rng, kind, per_channel, group):
    weight = random_weights(rng, (6, 3 // group, 3, 3))
    scale = rng.uniform(0.001, 0.01, 6).astype("float32") if per_channel else np.float32(0.004)
    weights = {
        **grid("x", 0.03, 10, kind),
        "w": weight,
        "ws": scale,
        "wz": np.zeros(scale.shape, "int8"),
        **grid("y", 0.11, 20, kind),
        "b": rng.integers(-9999, 9999, 6).astype("int32"),
    }
    inputs = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"]
    conv = node("QLinearConv", inputs, pads=[1, 1, 0, 1], strides=[2, 1], group=group)
    source = typed_model([conv], {"x": (kind, (2, 3, 9, 9))}, weights, {"y": kind})
    is_exact(source, x=random_codes(rng, (2, 3, 9, 9), kind))
    mod = integer(source)
    assert str(contractions(mod)[0].ty.dtype) == "int32" and not float_weights(mod)


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("per_column", [False, True])
def test_matrix_product(rng, kind, per_column):
    scale = rng.uniform(0.001, 0.01, 7).astype("float32") if per_column else np.float32(0.004)
    zero = np.zeros(scale.shape, "int8") if per_column else np.int8(3)
    weights = {
        **grid("a", 0.03, 10, kind),
        "b": random_weights(rng, (20, 7)),
        "bs": scale,
        "bz": zero,
        **grid("y", 0.07, 20, kind),
    }
    product = node("QLinearMatMul", ["a", "as", "az", "b", "bs", "bz", "ys", "yz"])
    source = typed_model([product], {"a": (kind, (50, 20))}, weights, {"y": kind})
    is_exact(source, a=random_codes(rng, (50, 20), kind))


def test_weights_of_all_eight_bits(rng):
    """Sums that ONNX Runtime saturates where a CPU adds products in 16 bits."""
    a, b = np.full((2, 40), 255, "uint8"), random_codes(rng, (40, 7), "int8")
    b[:, 0], b[:, 1] = 127, -128
    weights = {
        **grid("a", 0.03, 10, "uint8"),
        "b": b,
        "bs": np.float32(0.004),
        "bz": np.int8(0),
        **grid("y", 1.3, 128, "uint8"),
    }
    product = node("QLinearMatMul", ["a", "as", "az", "b", "bs", "bz", "ys", "yz"])
    source = typed_model([product], {"a": ("uint8", a.shape)}, weights, {"y": "uint8"})
    sums = (a.astype("int64") - 10) @ b
    expected = np.clip(np.rint(sums * (0.03 * 0.004 / 1.3)) + 128, 0, 255)
    np.testing.assert_array_equal(realized(source, a=a)[0], expected)


def test_product_of_two_tensors_of_the_network(rng):
    weights = {
        **grid("a", 0.03, 10, "uint8"),
        **grid("b", 0.02, 100, "uint8"),
        **grid("y", 0.5, 20, "uint8"),
    }
    product = node("QLinearMatMul", ["a", "as", "az", "b", "bs", "bz", "ys", "yz"])
    inputs = {"a": ("uint8", (5, 20)), "b": ("uint8", (20, 6))}
    source = typed_model([product], inputs, weights, {"y": "uint8"})
    is_exact(source, a=random_codes(rng, (5, 20), "uint8"), b=random_codes(rng, (20, 6), "uint8"))


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("alpha", [1.0, 0.7])
def test_gemm(rng, turned, alpha):
    shape = (7, 20) if turned else (20, 7)
    weights = {
        **grid("a", 0.03, 10, "uint8"),
        "b": random_weights(rng, shape),
        "bs": rng.uniform(0.001, 0.01, 7).astype("float32"),
        "bz": np.zeros(7, "int8"),
        "c": rng.integers(-9999, 9999, 7).astype("int32"),
        **grid("y", 0.07, 20, "uint8"),
    }
    inputs = ["a", "as", "az", "b", "bs", "bz", "c", "ys", "yz"]
    gemm = microsoft("QGemm", inputs, transB=turned, alpha=alpha)
    source = typed_model([gemm], {"a": ("uint8", (50, 20))}, weights, {"y": "uint8"})
    is_exact(source, a=random_codes(rng, (50, 20), "uint8"))


@pytest.mark.parametrize(
    ("operator", "combine"), [("QLinearAdd", np.add), ("QLinearMul", np.multiply)]
)
@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize(("scale", "zero"), [(0.043, 20), (0.036, 71)])
def test_two_operands(operator, combine, kind, scale, zero):
    """Every pair of codes; ONNX Runtime adds the zero point in float32, which decides ties."""
    weights = {
        **grid("a", 0.03, 10, kind),
        **grid("b", 0.021, 100, kind),
        **grid("y", scale, zero, kind),
    }
    call = microsoft(operator, ["a", "as", "az", "b", "bs", "bz", "ys", "yz"])
    source = typed_model([call], dict.fromkeys("ab", (kind, (256, 256))), weights, {"y": kind})
    limits = np.iinfo(kind)
    a, b = np.mgrid[limits.min : limits.max + 1, limits.min : limits.max + 1].astype(kind)
    (expected,) = onnxruntime_unoptimized(source, a=a, b=b)
    (got,) = realized(source, a=a, b=b)
    left, right = a.astype("float64") - 10, b.astype("float64") - 100
    exact = combine(0.03 * left, 0.021 * right) / scale
    at_tie = np.abs(exact % 1 - 0.5) < 1e-4
    assert at_tie.mean() < 0.1
    np.testing.assert_array_equal(got[~at_tie], expected[~at_tie])
    assert np.abs(got.astype(int) - expected).max() <= 1


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize(
    ("operator", "scale", "zero", "attributes"),
    [
        ("QLinearSigmoid", 1 / 256, 0, {}),
        ("QLinearLeakyRelu", 0.05, 30, {"alpha": 0.1}),
        ("QLinearSoftmax", 1 / 256, 0, {"axis": -1, "opset": 13}),
    ],
)
def test_functions(rng, operator, scale, zero, attributes, kind):
    zero = zero - (128 if kind == "int8" and zero == 0 else 0)
    weights = {**grid("x", 0.05, 3, kind), **grid("y", scale, zero, kind)}
    call = microsoft(operator, ["x", "xs", "xz", "ys", "yz"], **attributes)
    source = typed_model([call], {"x": (kind, (256, 8))}, weights, {"y": kind})
    x = np.arange(256).astype(kind)[:, None].repeat(8, 1) if "Soft" not in operator else None
    is_exact(source, x=random_codes(rng, (256, 8), kind) if x is None else x)


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("last", [0, 1])
def test_global_average_pool(rng, kind, last):
    weights = {**grid("x", 0.05, 3, kind), **grid("y", 0.013, 7, kind)}
    call = microsoft("QLinearGlobalAveragePool", ["x", "xs", "xz", "ys", "yz"], channels_last=last)
    shape = (40, 7, 5, 16) if last else (40, 16, 7, 5)
    source = typed_model([call], {"x": (kind, shape)}, weights, {"y": kind})
    is_exact(source, x=random_codes(rng, shape, kind))


def test_average_pool(rng):
    weights = {**grid("x", 0.05, 3, "uint8"), **grid("y", 0.043, 7, "uint8")}
    call = microsoft(
        "QLinearAveragePool", ["x", "xs", "xz", "ys", "yz"], kernel_shape=[3, 3], strides=[2, 2]
    )
    source = typed_model([call], {"x": ("uint8", (4, 8, 9, 9))}, weights, {"y": "uint8"})
    x = random_codes(rng, (4, 8, 9, 9), "uint8")
    (expected,) = onnxruntime_unoptimized(source, x=x)
    (got,) = realized(source, x=x)
    assert np.abs(got.astype(int) - expected).max() <= 1
    assert (got != expected).mean() < 0.001


def test_concat(rng):
    weights = {
        **grid("y", 0.04, 20, "uint8"),
        **grid("a", 0.04, 20, "uint8"),
        **grid("b", 0.03, 9, "uint8"),
    }
    call = microsoft("QLinearConcat", ["ys", "yz", "a", "as", "az", "b", "bs", "bz"], axis=1)
    inputs = {"a": ("uint8", (2, 100)), "b": ("uint8", (2, 256))}
    source = typed_model([call], inputs, weights, {"y": "uint8"})
    every = np.arange(256).astype("uint8")[None].repeat(2, 0)
    is_exact(source, a=random_codes(rng, (2, 100), "uint8"), b=every)
