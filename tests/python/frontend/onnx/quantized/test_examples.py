"""Worked examples of networks that were quantized elsewhere, with their numbers."""

import numpy as np
import pytest

from onnx_models import model, node, results
from quantized_models import (
    assert_means,
    contractions,
    custom,
    float_weights,
    grid,
    integer,
    onnxruntime_unoptimized,
    quantizer,
    realized,
    simulated,
    typed_model,
)
from tvm_quant import quantize
from tvm_quant.frontend import load
from tvm_quant.ir import bindings, constant_value, tapped

# A dense layer with a scale for each column ------------------------------------------------------

W = np.float32(
    [
        [-0.42833856, 0.2461826, 0.78714716, -0.7732045],
        [0.2447649, -0.86163914, -0.11244959, -0.44183114],
        [-0.06119122, 0.4923652, 0.11244959, 0.55228895],
    ]
)
S = np.float32([[0.06119122, 0.1230913, 0.11244959, 0.11045779]])
X = np.float32([[0.4732726, -0.66137505, -0.6119138]])
CODES = [[-7, 2, 7, -7], [4, -7, -1, -4], [-1, 4, 1, 5]]
ACC = [-5473, 3206, 3439, -3811]


def dense(*, fixed_point):
    """X @ Quant(W); with `fixed_point`, X on steps of 2**-10, cut off."""
    weights = {"w": W, **grid(S, bits=4, prefix="w"), **grid(2.0**-10, bits=16, prefix="x")}
    nodes = [
        quantizer("x", "qx", prefix="x", rounding_mode="FLOOR"),
        quantizer("w", "qw", prefix="w", narrow=1),
        node("MatMul", ["qx" if fixed_point else "x", "qw"]),
    ]
    return model(nodes if fixed_point else nodes[1:], {"x": (1, 3)}, weights)


def test_integers_of_a_dense_layer():
    mod = integer(dense(fixed_point=True))
    (product,) = contractions(mod)
    weight = constant_value(product.args[1])
    assert weight.dtype == np.int8 and weight.tolist() == CODES
    assert not float_weights(mod)
    (sums,) = [b.var for b in bindings(mod["main"]) if b.value.same_as(product)]
    (got,) = results(tapped(mod, [str(sums.name)]), {"x": X})
    assert got.ravel().tolist() == ACC


def test_the_scale_comes_back_once_and_along_the_columns():
    (got,) = realized(dense(fixed_point=True), x=X)
    expected = [-0.32705034, 0.38538155, 0.37765053, -0.41108851]
    np.testing.assert_allclose(got.ravel(), expected, rtol=0, atol=5e-8)
    dropped = np.array(ACC) / 1024
    np.testing.assert_allclose(got.ravel(), dropped * S.ravel(), rtol=0, atol=1e-7)
    for wrong in (dropped, dropped * S.ravel() ** 2, dropped * S.ravel()[::-1]):
        assert np.abs(got.ravel() - wrong).max() > 1e-3


@pytest.mark.parametrize("results_of", [simulated, realized])
def test_the_network_in_float(results_of):
    (got,) = results_of(dense(fixed_point=False), x=X)
    expected = [-0.3271585, 0.385093, 0.37809706, -0.41167364]
    np.testing.assert_allclose(got.ravel(), expected, rtol=0, atol=1e-7)
    exact = [-0.327158541, 0.385093039, 0.378097075, -0.411673639]
    np.testing.assert_allclose(got.ravel(), exact, rtol=0, atol=1e-7)


# Zero points and padding -------------------------------------------------------------------------


def test_zero_points_of_both_operands():
    weights = {
        "xs": np.float32(0.05),
        "xz": np.uint8(128),
        "w": np.int8([[2, -3], [1, 4], [-5, 0]]),
        "ws": np.float32([0.1, 0.2]),
        "wz": np.int8([1, 1]),
    }
    nodes = [
        node("DequantizeLinear", ["x", "xs", "xz"], "xd"),
        node("DequantizeLinear", ["w", "ws", "wz"], "wd", axis=1),
        node("MatMul", ["xd", "wd"]),
    ]
    source = typed_model(nodes, {"x": ("uint8", (2, 3))}, weights, {"y": "float"})
    x = np.uint8([[3, 200, 17], [128, 0, 255]])
    for got in (simulated(source, x=x)[0], realized(source, x=x)[0]):
        np.testing.assert_allclose(got, [[2.705, 8.27], [-3.81, -5.11]], rtol=1e-6)
    assert {str(call.ty.dtype) for call in contractions(integer(source))} == {"int32"}


def test_padding_is_real_zero():
    weights = {
        "xs": np.float32(1),
        "xz": np.uint8(128),
        "w": np.int8([[[1, 2, 1]]]),
        "ws": np.float32(1),
        "wz": np.int8(0),
        "ys": np.float32(1),
        "yz": np.int8(0),
    }
    inputs = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz2"]
    weights["yz2"] = np.uint8(100)
    source = typed_model(
        [node("QLinearConv", inputs, pads=[1, 1])],
        {"x": ("uint8", (1, 1, 4))},
        {name: weights[name] for name in inputs[1:]},
        {"y": "uint8"},
    )
    x = np.uint8([[[130, 140, 120, 128]]])
    codes = realized(source, x=x)[0].ravel().astype(int) - 100
    assert codes.tolist() == [16, 18, -4, -8]
    assert (onnxruntime_unoptimized(source, x=x)[0].ravel().astype(int) - 100).tolist() == [
        *(16, 18, -4, -8)
    ]


# Quantizers and relu -----------------------------------------------------------------------------

V = np.float32([-3.3, -0.3, -0.2, 0.2, 0.25, 0.3, 0.75, 1.75, 3.4, 3.8, 5.1])


def chain(*kinds):
    """Of "s" (a signed quantizer), "u" (an unsigned one) and "r" (relu)."""
    names = ["x", *(f"t{i}" for i in range(len(kinds) - 1)), "y"]
    nodes = []
    for kind, data, output in zip(kinds, names[:-1], names[1:], strict=True):
        if kind == "r":
            nodes.append(node("Relu", [data], output))
        else:
            nodes.append(quantizer(data, output, signed=int(kind == "s")))
    return model(nodes, {"x": V.shape}, grid(0.5))


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ("sr", [0, 0, 0, 0, 0, 0.5, 1, 2, 3.5, 3.5, 3.5]),
        ("ru", [0, 0, 0, 0, 0, 0.5, 1, 2, 3.5, 4, 5]),
        ("sru", [0, 0, 0, 0, 0, 0.5, 1, 2, 3.5, 3.5, 3.5]),
    ],
)
def test_the_order_of_quantizer_and_relu(kinds, expected):
    (got,) = assert_means(chain(*kinds), x=V)
    assert got.tolist() == expected


@pytest.mark.parametrize("mode", ["ROUND", "FLOOR", "CEIL", "UP", "DOWN", "HALF_UP", "HALF_DOWN"])
def test_relu_behind_a_signed_quantizer_is_one_bit_less_of_an_unsigned_one(mode):
    x = np.linspace(-6, 6, 97, dtype="float32")
    first = [quantizer("x", "q", rounding_mode=mode), node("Relu", ["q"])]
    second = [node("Relu", ["x"], "r"), quantizer("r", signed=0, rounding_mode=mode)]
    (a,) = realized(model(first, {"x": x.shape}, grid(0.5, bits=4)), x=x)
    (b,) = realized(model(second, {"x": x.shape}, grid(0.5, bits=3)), x=x)
    np.testing.assert_array_equal(a, b)


def test_two_quantizers_round_twice():
    x = np.float32([1.3])
    weights = {**grid(0.5, bits=8, prefix="a"), **grid(1.0, bits=8, prefix="b")}
    twice = [quantizer("x", "q", prefix="a"), quantizer("q", prefix="b")]
    assert realized(model(twice, {"x": (1,)}, weights), x=x)[0].tolist() == [2]
    once = [quantizer("x", prefix="b")]
    assert realized(model(once, {"x": (1,)}, weights), x=x)[0].tolist() == [1]


# Batch normalization, ties, sums -----------------------------------------------------------------


def normalized():
    weights = {
        "w": np.float32([[3, -7], [5, 1]]) * np.float32([[0.1, 0.25]]),
        **grid(np.float32([[0.1, 0.25]]), bits=4, prefix="w"),
        **grid(1, bits=6, prefix="x"),
        **grid(0.5, bits=2, prefix="y"),
        "gamma": np.float32([2, -0.5]),
        "beta": np.float32([0.3, 0.1]),
        "mean": np.float32([1, -2]),
        "var": np.float32([4, 0.25]),
    }
    nodes = [
        quantizer("x", "qx", prefix="x"),
        quantizer("w", "qw", prefix="w", narrow=1),
        node("MatMul", ["qx", "qw"], "m"),
        node("BatchNormalization", ["m", "gamma", "beta", "mean", "var"], "n", epsilon=0.0),
        node("Relu", ["n"], "r"),
        quantizer("r", "y", prefix="y", signed=0),
    ]
    return model(nodes, {"x": ("N", 2)}, weights, outputs=["n", "y"])


def test_batch_normalization_of_both_signs():
    real, _ = realized(normalized(), x=np.float32([[2, -1], [0, 3]]))
    np.testing.assert_allclose(real, [[-0.6, 1.85], [0.8, -2.65]], rtol=1e-5)


def test_thresholds_behind_a_batch_normalization():
    pairs = np.mgrid[-8:8, -8:8].reshape(2, -1).T.astype("float32")
    _, got = realized(normalized(), x=pairs)
    codes = got / 0.5
    first, second = (pairs @ [[3, -7], [5, 1]]).T
    for code, least, most in ((1, 10, -9), (2, 15, -11), (3, 20, -13)):
        np.testing.assert_array_equal(codes[:, 0] >= code, first >= least)
        np.testing.assert_array_equal(codes[:, 1] >= code, second <= most)


def test_ties_go_to_even_codes():
    weights = {**grid(0.5, bits=4, prefix="x"), **grid(1, bits=2, prefix="y")}
    nodes = [
        quantizer("x", "qx", prefix="x"),
        node("Reshape", ["qx", "shape"], "r"),
        quantizer("r", prefix="y", signed=0),
    ]
    weights["shape"] = np.int64([-1])
    x = np.arange(8, dtype="float32") / 2
    (got,) = assert_means(model(nodes, {"x": (8,)}, weights), x=x)
    assert got.tolist() == [0, 0, 1, 2, 2, 2, 3, 3]


@pytest.mark.parametrize("scales", [(0.25, 0.25), (0.25, 0.5), (0.3, 0.3), (0.3, 0.17)])
def test_sums_of_two_quantized_tensors(scales):
    weights = {
        **grid(scales[0], bits=4, prefix="a"),
        **grid(scales[1], bits=4, prefix="b"),
        **grid(0.35, bits=4, prefix="y"),
    }
    nodes = [
        quantizer("a", "qa", prefix="a"),
        quantizer("b", "qb", prefix="b"),
        node("Add", ["qa", "qb"], "s"),
        quantizer("s", prefix="y"),
    ]
    pairs = np.mgrid[-8:8, -8:8].reshape(2, -1).astype("float32")
    a, b = (pairs[i] * np.float32(scales[i]) for i in range(2))
    assert_means(model(nodes, {"a": a.shape, "b": b.shape}, weights), a=a, b=b)


def test_a_network_of_signs():
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.normal(size=(5, 3)).astype("float32"),
        "s": np.float32(1),
        "u": np.float32(0.7),
        "b": np.float32([0, 1, -1]),
    }
    nodes = [
        custom("BipolarQuant", ["x", "s"], "qx"),
        custom("BipolarQuant", ["w", "u"], "qw"),
        node("MatMul", ["qx", "qw"], "m"),
        node("Add", ["m", "b"], "a"),
        custom("BipolarQuant", ["a", "s"], "y"),
    ]
    x = rng.normal(size=(40, 5)).astype("float32")
    x[0] = [1, -1, -1, 1, 1]
    source = model(nodes, {"x": x.shape}, weights)
    assert_means(source, x=x)
    assert {str(call.ty.dtype) for call in contractions(integer(source))} == {"int32"}


def test_quantizing_twice_changes_nothing():
    mod, _ = load(dense(fixed_point=True))
    once = quantize(mod)
    assert {str(call.ty.dtype) for call in contractions(quantize(once))} == {"int32"}
