"""Operators against their formulas in NumPy; no MXNet is needed."""

import numpy as np
import pytest
from scipy import special

from integer_oracle import convolve, convolve_transposed
from mxnet_models import computed, imported, node, one
from tvm_quant.errors import FrontendError
from tvm_quant.frontend.mxnet.converters import CONVERTERS
from tvm_quant.ir import bindings, op_name

RNG = np.random.default_rng(0)
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def normal(*shape):
    return RNG.normal(size=shape).astype("float32")


X = normal(2, 4, 7, 6)
POSITIVE = np.abs(X) + np.float32(0.1)


def test_convolution():
    w, b = normal(6, 2, 3, 2), normal(6)
    got = one(
        "Convolution", X, w, b, kernel=(3, 2), num_filter=6, num_group=2, stride=(2, 1), pad=(1, 0)
    )
    wanted = convolve(X, w, strides=[2, 1], padding=[1, 0, 1, 0], groups=2)
    np.testing.assert_allclose(got, wanted + b.reshape(1, -1, 1, 1), **TOLERANCE)


@pytest.mark.parametrize("rank", [1, 3])
def test_convolution_of_other_ranks_without_bias(rank):
    x, w = normal(1, 2, *[6, 5, 4][:rank]), normal(3, 2, *[2] * rank)
    sizes = {"kernel": (2,) * rank, "dilate": (2,) * rank}
    got = one("Convolution", x, w, num_filter=3, no_bias=True, **sizes)
    np.testing.assert_allclose(got, convolve(x, w, dilation=2), **TOLERANCE)


def test_deconvolution():
    w = normal(4, 3, 3, 3)
    sizes = {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "adj": (1, 0)}
    got = one("Deconvolution", X, w, num_filter=6, num_group=2, **sizes)
    wanted = convolve_transposed(
        X, w, strides=2, padding=[1, 1, 1, 1], groups=2, output_padding=[1, 0]
    )
    np.testing.assert_allclose(got, wanted, **TOLERANCE)


def test_deconvolution_to_a_given_shape():
    """Twice the size, by the rule that centres the result."""
    w = normal(4, 3, 3, 3)
    sizes = {"kernel": (3, 3), "stride": (2, 2), "target_shape": (14, 12)}
    got = one("Deconvolution", X, w, num_filter=3, **sizes)
    wanted = convolve_transposed(X, w, strides=2, padding=[1, 1, 1, 1], output_padding=1)
    np.testing.assert_allclose(got, wanted, **TOLERANCE)


@pytest.mark.parametrize(
    ("x", "flatten"), [(X, True), (normal(3, 5), True), (normal(2, 3, 5), False)]
)
def test_fully_connected(x, flatten):
    rows = x.reshape(len(x), -1) if flatten else x
    w, b = normal(4, rows.shape[-1]), normal(4)
    got = one("FullyConnected", x, w, b, num_hidden=4, flatten=flatten)
    np.testing.assert_allclose(got, rows @ w.T + b, rtol=1e-4, atol=1e-4)


def pooled(x, kind, *, window, stride, pad, ceil, whole):
    """Windows one by one, as src/operator/nn/pool.h of MXNet has them."""
    sizes = []
    for size, k, s, p in zip(x.shape[2:], window, stride, pad, strict=True):
        steps = (size + 2 * p - k) / s
        sizes.append(int(np.ceil(steps) if ceil else np.floor(steps)) + 1)
    result = np.zeros((*x.shape[:2], *sizes))
    for i in range(sizes[0]):
        for j in range(sizes[1]):
            at = [i * stride[0] - pad[0], j * stride[1] - pad[1]]
            stop = [
                min(a + k, size + p)
                for a, k, size, p in zip(at, window, x.shape[2:], pad, strict=True)
            ]
            full = (stop[0] - at[0]) * (stop[1] - at[1])
            low = [max(a, 0) for a in at]
            high = [min(a, size) for a, size in zip(stop, x.shape[2:], strict=True)]
            part = x[:, :, low[0] : high[0], low[1] : high[1]]
            count = full if whole else (high[0] - low[0]) * (high[1] - low[1])
            total = part.max((2, 3)) if kind == "max" else part.sum((2, 3))
            result[:, :, i, j] = total / count if kind == "avg" else total
    return result


@pytest.mark.parametrize("kind", ["max", "avg", "sum"])
@pytest.mark.parametrize("convention", ["valid", "full"])
@pytest.mark.parametrize("pad", [(0, 0), (0, 1)])
@pytest.mark.parametrize("whole", [True, False])
def test_pooling(kind, convention, pad, whole):
    window, stride = (2, 3), (2, 2)
    got = one(
        "Pooling",
        X,
        pool_type=kind,
        kernel=window,
        stride=stride,
        pad=pad,
        pooling_convention=convention,
        count_include_pad=whole,
    )
    wanted = pooled(
        X, kind, window=window, stride=stride, pad=pad, ceil=convention == "full", whole=whole
    )
    np.testing.assert_allclose(got, wanted, **TOLERANCE)


@pytest.mark.parametrize(("kind", "function"), [("max", np.max), ("avg", np.mean), ("sum", np.sum)])
def test_global_pooling(kind, function):
    got = one("Pooling", X, pool_type=kind, global_pool=True, kernel=(1, 1))
    np.testing.assert_allclose(got, function(X, axis=(2, 3), keepdims=True), **TOLERANCE)


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("axis", [1, -1])
def test_batch_norm(fixed, axis):
    count = X.shape[axis]
    gamma, beta, mean, variance = normal(count), normal(count), normal(count), normal(count) ** 2
    got = one("BatchNorm", X, gamma, beta, mean, variance, fix_gamma=fixed, axis=axis, eps=1e-3)
    shape = [1, 1, 1, 1]
    shape[axis] = -1
    g, b, m, v = (a.reshape(shape) for a in (gamma, beta, mean, variance))
    wanted = (X - m) / np.sqrt(v + 1e-3) * (1 if fixed else g) + b
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_other_normalizations():
    gamma, beta = normal(6), normal(6)
    mean, variance = X.mean(-1, keepdims=True), X.var(-1, keepdims=True)
    np.testing.assert_allclose(
        one("LayerNorm", X, gamma, beta, axis=-1, eps=1e-3),
        (X - mean) / np.sqrt(variance + 1e-3) * gamma + beta,
        **TOLERANCE,
    )
    gamma, beta = normal(4), normal(4)
    mean, variance = X.mean((2, 3), keepdims=True), X.var((2, 3), keepdims=True)
    np.testing.assert_allclose(
        one("InstanceNorm", X, gamma, beta, eps=1e-3),
        (X - mean) / np.sqrt(variance + 1e-3) * gamma.reshape(-1, 1, 1) + beta.reshape(-1, 1, 1),
        **TOLERANCE,
    )
    for mode, axes in {"instance": (1, 2, 3), "channel": (1,), "spatial": (2, 3)}.items():
        length = np.sqrt((X**2).sum(axes, keepdims=True) + 1e-10)
        got = one("L2Normalization", X, mode=mode)
        np.testing.assert_allclose(got, X / length, **TOLERANCE)
    squares = np.pad(X**2, [(0, 0), (1, 1), (0, 0), (0, 0)])
    total = sum(squares[:, i : i + 4] for i in range(3))
    got = one("LRN", X, nsize=3, alpha=0.2, beta=0.6, knorm=1.5)
    np.testing.assert_allclose(got, X / (1.5 + 0.2 / 3 * total) ** 0.6, **TOLERANCE)


def _elu(x, slope):
    return np.where(x > 0, x, slope * np.expm1(np.minimum(x, 0)))


SCALE, ALPHA = 1.0507009873554805, 1.6732632423543772
FUNCTIONS = {
    "Activation relu": ({"act_type": "relu"}, lambda x: np.maximum(x, 0)),
    "Activation sigmoid": ({"act_type": "sigmoid"}, special.expit),
    "Activation tanh": ({"act_type": "tanh"}, np.tanh),
    "Activation softrelu": ({"act_type": "softrelu"}, lambda x: np.log1p(np.exp(x))),
    "Activation softsign": ({"act_type": "softsign"}, lambda x: x / (1 + np.abs(x))),
    "LeakyReLU": ({"slope": 0.1}, lambda x: np.where(x > 0, x, 0.1 * x)),
    "LeakyReLU rrelu": (
        {"act_type": "rrelu", "lower_bound": 0.1, "upper_bound": 0.3},
        lambda x: np.where(x > 0, x, 0.2 * x),
    ),
    "LeakyReLU elu": ({"act_type": "elu", "slope": 0.5}, lambda x: _elu(x, 0.5)),
    "LeakyReLU selu": ({"act_type": "selu"}, lambda x: SCALE * _elu(x, ALPHA)),
    "LeakyReLU gelu": (
        {"act_type": "gelu"},
        lambda x: 0.5 * x * (1 + special.erf(x / np.sqrt(2))),
    ),
    "hard_sigmoid": ({"alpha": 0.3}, lambda x: np.clip(0.3 * x + 0.5, 0, 1)),
    "clip": ({"a_min": -0.5, "a_max": 1}, lambda x: np.clip(x, -0.5, 1)),
    "abs": ({}, np.abs),
    "ceil": ({}, np.ceil),
    "cos": ({}, np.cos),
    "cosh": ({}, np.cosh),
    "arctan": ({}, np.arctan),
    "expm1": ({}, np.expm1),
    "fix": ({}, np.trunc),
    "ones_like": ({}, np.ones_like),
    "reciprocal": ({}, lambda x: 1 / x),
    "rint": ({}, np.round),
    "sinh": ({}, np.sinh),
    "tan": ({}, np.tan),
    "zeros_like": ({}, np.zeros_like),
    "reverse": ({"axis": "(1, 3)"}, lambda x: x[:, ::-1, :, ::-1]),
    "norm": ({}, lambda x: np.sqrt((x**2).sum()).reshape(1)),
    "norm of rows": ({"ord": 1, "axis": 3}, lambda x: np.abs(x).sum(3)),
    "smooth_l1": (
        {"scalar": 2},
        lambda x: np.where(np.abs(x) < 0.25, 2 * x**2, np.abs(x) - 0.125),
    ),
    "erf": ({}, special.erf),
    "exp": ({}, np.exp),
    "floor": ({}, np.floor),
    "negative": ({}, np.negative),
    "relu": ({}, lambda x: np.maximum(x, 0)),
    "sigmoid": ({}, special.expit),
    "sign": ({}, np.sign),
    "sin": ({}, np.sin),
    "square": ({}, np.square),
    "tanh": ({}, np.tanh),
    "_plus_scalar": ({"scalar": 3}, lambda x: x + 3),
    "_minus_scalar": ({"scalar": 3}, lambda x: x - 3),
    "_rminus_scalar": ({"scalar": 3}, lambda x: 3 - x),
    "_mul_scalar": ({"scalar": 0.5}, lambda x: x * 0.5),
    "_div_scalar": ({"scalar": 0.7}, lambda x: x / 0.7),
    "_maximum_scalar": ({"scalar": 0.2}, lambda x: np.maximum(x, 0.2)),
    "_minimum_scalar": ({"scalar": 0.2}, lambda x: np.minimum(x, 0.2)),
    "_greater_scalar": ({"scalar": 0.2}, lambda x: x > 0.2),
    "_lesser_equal_scalar": ({"scalar": 0.2}, lambda x: x <= 0.2),
    "softmax": ({"temperature": 2.0}, lambda x: special.softmax(x / 2, -1)),
    "log_softmax": ({"axis": 1}, lambda x: special.log_softmax(x, 1)),
    "SoftmaxOutput": ({"multi_output": True}, lambda x: special.softmax(x, 1)),
    "SoftmaxOutput kept": ({"preserve_shape": True}, lambda x: special.softmax(x, -1)),
    "SoftmaxOutput flat": ({}, lambda x: special.softmax(x, (1, 2, 3))),
    "SoftmaxActivation": ({"mode": "channel"}, lambda x: special.softmax(x, 1)),
    "LogisticRegressionOutput": ({}, special.expit),
    "LinearRegressionOutput": ({}, lambda x: x),
    "Dropout": ({"p": 0.5}, lambda x: x),
    "Flatten": ({}, lambda x: x.reshape(2, -1)),
    "Reshape": ({"shape": "(0, -1, 3)"}, lambda x: x.reshape(2, -1, 3)),
    "Reshape old": ({"target_shape": "(2, 0)"}, lambda x: x.reshape(2, -1)),
    "transpose": ({"axes": (0, 2, 3, 1)}, lambda x: x.transpose(0, 2, 3, 1)),
    "transpose all": ({}, lambda x: x.T),
    "SwapAxis": ({"dim1": 1, "dim2": 3}, lambda x: x.swapaxes(1, 3)),
    "expand_dims": ({"axis": 2}, lambda x: x[:, :, None]),
    "slice_axis": ({"axis": -1, "begin": 1, "end": None}, lambda x: x[..., 1:]),
    "slice_axis end": ({"axis": 2, "begin": 1, "end": -2}, lambda x: x[:, :, 1:-2]),
    "slice": (
        {"begin": "(None, 1, 5)", "end": "(None, 3, 0)", "step": "(None, 1, -2)"},
        lambda x: x[:, 1:3, 5:0:-2],
    ),
    "tile": ({"reps": "(1, 2)"}, lambda x: np.tile(x, (1, 2))),
    "repeat": ({"repeats": 2, "axis": 1}, lambda x: np.repeat(x, 2, 1)),
    "mean": ({"axis": 1}, lambda x: x.mean(1)),
    "mean but": ({"axis": "(0, 1)", "exclude": True}, lambda x: x.mean((2, 3))),
    "sum": ({"axis": "(2, 3)", "keepdims": True}, lambda x: x.sum((2, 3), keepdims=True)),
    "max": ({}, lambda x: x.max().reshape(1)),
    "min": ({"axis": -1}, lambda x: x.min(-1)),
    "argmax": ({"axis": 1}, lambda x: x.argmax(1).astype("float32")),
    "Pad": (
        {"mode": "constant", "pad_width": (0, 0, 0, 0, 1, 2, 0, 1), "constant_value": 1.5},
        lambda x: np.pad(x, [(0, 0), (0, 0), (1, 2), (0, 1)], constant_values=1.5),
    ),
    "Pad edge": (
        {"mode": "edge", "pad_width": (0, 0, 0, 0, 1, 2, 0, 1)},
        lambda x: np.pad(x, [(0, 0), (0, 0), (1, 2), (0, 1)], mode="edge"),
    ),
    "Crop": ({"num_args": 1, "h_w": (3, 4), "offset": (1, 2)}, lambda x: x[:, :, 1:4, 2:6]),
    "UpSampling": (
        {"scale": 2, "sample_type": "nearest", "num_args": 1},
        lambda x: x.repeat(2, 2).repeat(2, 3),
    ),
    "_contrib_AdaptiveAvgPooling2D": ({}, lambda x: x.mean((2, 3), keepdims=True)),
    "cast": ({"dtype": "int32"}, lambda x: x.astype("int32")),
    "depth_to_space": (
        {"block_size": 2},
        lambda x: x.reshape(2, 2, 2, 1, 7, 6).transpose(0, 3, 4, 1, 5, 2).reshape(2, 1, 14, 12),
    ),
    "broadcast_to": ({"shape": "(0, 0, 7, 0)"}, lambda x: x),
}


def test_functions_of_one_tensor():
    """All in one network, each result compared."""
    nodes = [
        node(key.partition(" ")[0], ["x"], f"n{index}", **attributes)
        for index, (key, (attributes, _)) in enumerate(FUNCTIONS.items())
    ]
    results = computed(nodes, {"x": X}, heads=[item["name"] for item in nodes])
    for (key, (_, function)), got in zip(FUNCTIONS.items(), results, strict=True):
        wanted = np.asarray(function(X))
        assert got.shape == wanted.shape, key
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5, err_msg=key)


ROOTS = {
    "log1p": np.log1p,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}


def test_functions_of_positive_numbers():
    nodes = [node(name, ["x"], name + "_") for name in ROOTS]
    nodes += [
        node("_rdiv_scalar", ["x"], "inverse", scalar=2),
        node("_power_scalar", ["x"], "power", scalar=1.5),
    ]
    results = computed(nodes, {"x": POSITIVE}, heads=[item["name"] for item in nodes])
    wanted = [function(POSITIVE) for function in ROOTS.values()]
    wanted += [2 / POSITIVE, POSITIVE**1.5]
    for got, value in zip(results, wanted, strict=True):
        np.testing.assert_allclose(got, value, **TOLERANCE)


BINARY = {
    "elemwise_add": np.add,
    "_Plus": np.add,
    "broadcast_sub": np.subtract,
    "elemwise_mul": np.multiply,
    "broadcast_div": np.divide,
    "broadcast_maximum": np.maximum,
    "broadcast_minimum": np.minimum,
    "broadcast_equal": np.equal,
    "broadcast_greater": np.greater,
    "broadcast_lesser": np.less,
}


def test_functions_of_two_tensors():
    other = normal(2, 4, 1, 6)
    wide = {"broadcast_", "_Plus", "elemwise_"}
    nodes = [node(name, ["x", "y"], f"n{i}") for i, name in enumerate(BINARY)]
    assert all(any(name.startswith(prefix) for prefix in wide) for name in BINARY)
    results = computed(nodes, {"x": X, "y": other}, heads=[item["name"] for item in nodes])
    for (name, function), got in zip(BINARY.items(), results, strict=True):
        np.testing.assert_allclose(got, function(X, other), err_msg=name, **TOLERANCE)


def test_several_tensors():
    other = normal(2, 4, 7, 6)
    nodes = [
        node("Concat", ["x", "y"], "cat", dim=1, num_args=2),
        node("stack", ["x", "y"], "stacked", axis=1, num_args=2),
        node("add_n", ["x", "y", "x"], "sum", num_args=3),
        node("slice_like", ["x", "small"], "like", axes=(2, 3)),
        node("broadcast_like", ["one", "x"], "wide"),
        node("batch_dot", ["a", "b"], "product", transpose_b=True),
    ]
    params = {
        "small": normal(1, 1, 3, 2),
        "one": normal(2, 1, 1, 6),
        "a": normal(2, 3, 5),
        "b": normal(2, 4, 5),
    }
    results = computed(nodes, {"x": X, "y": other}, params, heads=[item["name"] for item in nodes])
    wanted = [
        np.concatenate([X, other], 1),
        np.stack([X, other], 1),
        X + other + X,
        X[:, :, :3, :2],
        np.broadcast_to(params["one"], X.shape),
        params["a"] @ params["b"].transpose(0, 2, 1),
    ]
    for got, value in zip(results, wanted, strict=True):
        np.testing.assert_allclose(got, value, **TOLERANCE)


def test_split_gives_each_of_its_parts():
    nodes = [node("SliceChannel", ["x"], "parts", num_outputs=4, axis=1, squeeze_axis=True)]
    results = computed(nodes, {"x": X}, heads=["parts:2", "parts:0"])
    np.testing.assert_array_equal(results[0], X[:, 2])
    np.testing.assert_array_equal(results[1], X[:, 0])


def test_rows_by_number_stop_at_the_ends():
    table, numbers = normal(5, 3), np.array([[0, 4], [9, -2]], "float32")
    rows = table[np.clip(numbers, 0, 4).astype(int)]
    nodes = [node("Embedding", ["i", "w"], "e", input_dim=5, output_dim=3)]
    np.testing.assert_array_equal(computed(nodes, {"i": numbers}, {"w": table})[0], rows)
    nodes = [node("take", ["w", "i"], "t")]
    np.testing.assert_array_equal(computed(nodes, {"i": numbers}, {"w": table})[0], rows)


def test_rows_of_indices_and_choices():
    numbers = np.array([[0, 2], [1, 1]], "float32")
    rows = one("one_hot", numbers, depth=3, on_value=2, off_value=-1)
    np.testing.assert_array_equal(rows, np.eye(3, dtype="float32")[numbers.astype(int)] * 3 - 1)
    a, b = normal(2, 2), normal(2, 2)
    np.testing.assert_array_equal(one("where", numbers, a, b), np.where(numbers != 0, a, b))


def test_prelu_has_a_slope_for_each_channel_or_one():
    slopes = normal(4)
    got = one("LeakyReLU", X, slopes, act_type="prelu")
    wanted = np.where(X > 0, X, X * slopes.reshape(1, -1, 1, 1))
    np.testing.assert_allclose(got, wanted, **TOLERANCE)
    got = one("LeakyReLU", X, np.array([0.3], "float32"), act_type="prelu")
    np.testing.assert_allclose(got, np.where(X > 0, X, X * 0.3), **TOLERANCE)


def test_bilinear_upsampling_is_a_convolution_with_the_weights_of_the_node():
    weight = normal(4, 1, 4, 4)
    got = one("UpSampling", X, weight, scale=2, sample_type="bilinear", num_filter=4)
    wanted = convolve_transposed(X, weight, strides=2, padding=[1, 1, 1, 1], groups=4)
    np.testing.assert_allclose(got, wanted, **TOLERANCE)


def test_no_operator_hides_behind_a_generated_kernel():
    """Passes see Relax operators alone."""
    nodes = [
        node(key.partition(" ")[0], ["x"], f"n{index}", **attributes)
        for index, (key, (attributes, _)) in enumerate(FUNCTIONS.items())
    ]
    mod = imported(nodes, {"x": X.shape}, heads=[item["name"] for item in nodes])
    assert "relax.call_tir" not in {op_name(b.value) for b in bindings(mod["main"])}


@pytest.mark.parametrize(
    ("operator", "attributes", "message"),
    [
        ("Activation", {"act_type": "swish"}, "its activation is 'swish'; supported are"),
        ("Convolution", {"kernel": (3, 3), "layout": "NHWC"}, "its layout is NHWC; expected NCHW"),
        ("Pooling", {"kernel": (2, 2), "pool_type": "lp"}, "its pool type is 'lp'"),
        ("Pooling", {"kernel": (2, 2), "pooling_convention": "same"}, "convention is 'same'"),
        (
            "Pooling",
            {"kernel": (2, 2), "stride": (2, 2), "pad": (1, 1), "pooling_convention": "full"},
            "its last window lies behind the data",
        ),
        ("Pooling", {}, "its attribute 'kernel' is missing"),
        ("Concat", {"dim": 7}, "its axis is 7, but the data has 4 axes"),
        ("Pad", {"mode": "odd", "pad_width": (0,) * 8}, "its mode is 'odd'"),
        ("UpSampling", {"scale": 2, "sample_type": "cubic"}, "its sample type is 'cubic'"),
        ("clip", {"a_min": 0}, "its attribute 'a_max' is missing"),
        ("Deconvolution", {"kernel": (3, 3), "target_shape": (90, 90)}, "its target shape"),
    ],
)
def test_what_has_no_form_is_named_with_its_node(operator, attributes, message):
    inputs = ["x", "w"] if operator in ("Convolution", "Deconvolution") else ["x"]
    with pytest.raises(FrontendError, match=rf"MXNet node 'y' \({operator};.*{message}"):
        imported([node(operator, inputs, **attributes)], {"x": X.shape}, {"w": normal(4, 4, 3, 3)})


def test_operators_without_a_row_are_listed_with_their_nodes():
    nodes = [node("Custom", ["x"], "a"), node("RNN", ["a"], "b"), node("RNN", ["b"], "c")]
    with pytest.raises(FrontendError, match=r"(?s)Custom: 'a'\n  RNN: 'b', 'c'\nReplace them"):
        imported(nodes, {"x": (1, 2)})


def test_fused_operators_are_refused_with_the_way_out():
    with pytest.raises(FrontendError, match="MXNET_SUBGRAPH_BACKEND=NONE"):
        imported([node("_sg_mkldnn_conv", ["x"], "a")], {"x": (1, 2)})


def test_results_that_inference_does_not_have_are_refused():
    nodes = [node("BatchNorm", ["x", "g", "b", "m", "v"], "bn"), node("relu", ["bn:1"])]
    ones = {name: np.ones(4, "float32") for name in "gbmv"}
    with pytest.raises(FrontendError, match="reads result 1 of 'bn'"):
        imported(nodes, {"x": X.shape}, ones)


def test_every_row_is_callable():
    assert all(callable(convert) for convert in CONVERTERS.values())
