"""Networks that MXNet quantized: annotated graphs, and the integers that they become."""

import numpy as np
import pytest

import tvm_quant
from integer_oracle import convolve
from mxnet_models import computed, imported, node
from plain_tvm import run_one
from tvm_quant.errors import FrontendError
from tvm_quant.ir import bindings, op_name
from tvm_quant.op import Kind, brings_scales, is_simulated, kind_of, quantize_numpy, spec_of
from tvm_quant.op.spec import QuantSpec

RNG = np.random.default_rng(0)
U8, S8 = QuantSpec(signed=False), QuantSpec()


def codes(*shape):
    return RNG.integers(-128, 128, shape).astype("int8")


def ends(reach, name):
    return {
        f"{name}_min": np.array([-reach], "float32"),
        f"{name}_max": np.array([reach], "float32"),
    }


def quantize(low, high, data="x", name="q", **more):
    return node(
        "_contrib_quantize_v2", [data], name, min_calib_range=low, max_calib_range=high, **more
    )


def requantize(data, reach, name="r", **more):
    inputs = [f"{data}:{i}" for i in range(3)]
    ranges = {"min_calib_range": -reach, "max_calib_range": reach}
    return node("_contrib_requantize", inputs, name, **ranges, **more)


def dequantize(data, name="y"):
    return node("_contrib_dequantize", [f"{data}:{i}" for i in range(3)], name)


def contraction(operator, bias, **attributes):
    names = ["q", "w", "b", "q:1", "q:2", "w_min", "w_max", "b_min", "b_max"]
    if not bias:
        names = ["q", "w", "q:1", "q:2", "w_min", "w_max"]
    return node(operator, names, "c", no_bias=not bias, **attributes)


def step(value, reach, spec):
    """Codes and real numbers of a quantizer."""
    scale = np.float32(reach / (127 if spec.signed else 255))
    found = quantize_numpy(value, scale, 0, spec).astype("int64")
    return found, found * float(scale)


CONV = {"kernel": (3, 3), "num_filter": 4, "pad": (1, 1)}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("kind", "spec"), [("uint8", U8), ("int8", S8)])
def test_convolution_becomes_integers(bias, kind, spec):
    x = RNG.uniform(-1, 1, (2, 3, 6, 6)).astype("float32")
    params = {"w": codes(4, 3, 3, 3), **ends(0.5, "w"), "b": codes(4), **ends(2.0, "b")}
    nodes = [
        quantize(-0.9 if spec.signed else 0.0, 0.9, out_type=kind),
        contraction("_contrib_quantized_conv", bias, **CONV),
        requantize("c", 1.5),
        dequantize("r"),
    ]
    mod = imported(nodes, {"x": x.shape}, params)
    assert brings_scales(mod)

    q, _ = step(x, 0.9, spec)
    sums = convolve(q, params["w"].astype("int64"), padding=[1, 1, 1, 1])
    unit = 0.9 / (127 if spec.signed else 255) * 0.5 / 127
    if bias:
        sums = sums + np.rint(params["b"] * (2.0 / 127 / unit)).reshape(1, -1, 1, 1)
    _, wanted = step(sums * unit, 1.5, S8)

    integer = tvm_quant.quantize(mod)
    got = tvm_quant.Runner(integer, "llvm").run({"x": x})[0]
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=0)
    types = {op_name(b.value): str(b.var.ty.dtype) for b in bindings(integer["main"])}
    assert types["relax.nn.conv2d"] == "int32"


def test_fully_connected_becomes_integers():
    x = RNG.uniform(-1, 1, (2, 3, 5)).astype("float32")
    params = {"w": codes(4, 15), **ends(0.5, "w"), "b": codes(4), **ends(2.0, "b")}
    nodes = [
        quantize(-0.9, 0.9),
        contraction("_contrib_quantized_fully_connected", True, num_hidden=4),
        requantize("c", 1.5),
        dequantize("r"),
    ]
    unit = 0.9 / 127 * 0.5 / 127
    sums = step(x, 0.9, S8)[0].reshape(2, -1) @ params["w"].T.astype("int64")
    sums = sums + np.rint(params["b"] * (2.0 / 127 / unit))
    _, wanted = step(sums * unit, 1.5, S8)
    integer = tvm_quant.quantize(imported(nodes, {"x": x.shape}, params))
    got = tvm_quant.Runner(integer, "llvm").run({"x": x})[0]
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=0)


def test_sums_products_joins_pools_and_relu_keep_their_meaning():
    x, y = (RNG.uniform(-1, 1, (2, 4, 5, 5)).astype("float32") for _ in range(2))
    two = ["a", "b", "a:1", "a:2", "b:1", "b:2"]
    pool = {"kernel": (3, 3), "stride": (1, 1)}  # nine numbers: no average lies between two codes
    nodes = [
        quantize(-0.97, 0.9, "x", "a"),
        quantize(-0.47, 0.4, "y", "b"),
        node("_contrib_quantized_elemwise_add", two, "sum"),
        requantize("sum", 1.13, "add"),
        node("_contrib_quantized_elemwise_mul", two, "product"),
        requantize("product", 0.4, "mul", out_type="int8"),
        node(
            "_contrib_quantized_concat",
            ["a", "b", "a:1", "a:2", "b:1", "b:2"],
            "cat",
            num_args=2,
            dim=1,
        ),
        node("_contrib_quantized_act", ["a", "a:1", "a:2"], "relu", act_type="relu"),
        node("_contrib_quantized_pooling", ["a", "a:1", "a:2"], "mx", pool_type="max", **pool),
        node("_contrib_quantized_pooling", ["a", "a:1", "a:2"], "av", pool_type="avg", **pool),
        node("_contrib_quantized_flatten", ["a", "a:1", "a:2"], "flat"),
    ]
    names = ["add", "mul", "cat", "relu", "mx", "av", "flat"]
    nodes += [dequantize(name, f"{name}_out") for name in names]
    results = computed(nodes, {"x": x, "y": y}, heads=[f"{name}_out" for name in names])
    _, a = step(x, 0.97, S8)
    _, b = step(y, 0.47, S8)
    windows = np.stack([a[:, :, i : i + 3, j : j + 3] for i in range(3) for j in range(3)])
    wanted = [
        step(a + b, 1.13, S8)[1],
        step(a * b, 0.4, S8)[1],
        np.concatenate([a, step(b, 0.97, S8)[1]], 1),
        np.maximum(a, 0),
        windows.max(0),
        step(windows.mean(0), 0.97, S8)[1],
        a.reshape(2, -1),
    ]
    for name, got, value in zip(names, results, wanted, strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_batch_norm_gives_codes_of_its_own_range():
    x = RNG.uniform(-1, 1, (2, 3, 4, 4)).astype("float32")
    stats = {name: RNG.uniform(0.5, 1, 3).astype("float32") for name in "gbmv"}
    ranges = {"min_calib_range": -2, "max_calib_range": 2}
    nodes = [
        quantize(-1, 1),
        node(
            "_contrib_quantized_batch_norm",
            ["q", "g", "b", "m", "v", "q:1", "q:2"],
            "bn",
            eps=1e-3,
            fix_gamma=False,
            **ranges,
        ),
        dequantize("bn"),
    ]
    g, b, m, v = (stats[name].reshape(-1, 1, 1) for name in "gbmv")
    real = (step(x, 1.0, S8)[1] - m) / np.sqrt(v + 1e-3) * g + b
    got = computed(nodes, {"x": x}, stats)[0]
    assert np.abs(got - step(real, 2.0, S8)[1]).max() < 2.0 / 127 * 1e-3


def test_the_type_auto_is_unsigned_where_nothing_is_negative():
    nodes = [quantize(0.0, 2.0, out_type="auto"), quantize(-0.1, 2.0, name="s", out_type="auto")]
    mod = imported(nodes, {"x": (1, 4)}, heads=["q", "s"])
    quantizers = [b.value for b in bindings(mod["main"]) if is_simulated(b.value)]
    assert [spec_of(call).signed for call in quantizers] == [False, True]
    assert {kind_of(call) for call in quantizers} == {Kind.INPUT}


def test_a_parameter_that_is_zero_everywhere_stays_zero():
    """MXNet divides by its range and stores whatever comes of it."""
    params = {"w": codes(4, 6), **ends(0.5, "w"), "b": codes(4), **ends(0.0, "b")}
    nodes = [
        quantize(-1, 1),
        contraction("_contrib_quantized_fully_connected", True, num_hidden=4),
        dequantize("c"),
    ]
    mod = imported(nodes, {"x": (1, 6)}, params)
    np.testing.assert_array_equal(run_one(mod, np.zeros((1, 6), "float32")), np.zeros((1, 4)))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("_contrib_quantize_v2", ["x"], "q")], "takes its range from each batch.*'naive'"),
        ([quantize(0, 0)], "its range is 0 to 0; calibrate"),
        ([quantize(-1, 1, out_type="int4")], "its codes are of type 'int4'"),
        (
            [quantize(-1, 1), node("_contrib_quantized_act", ["q", "q:1", "q:2"], act_type="tanh")],
            "MXNet quantizes relu alone",
        ),
        ([quantize(-1, 1), node("abs", ["q:1"])], "its input 0 is missing, or the range"),
        (
            [node("_contrib_quantized_flatten", ["x", "x", "x"], "f")],
            "works on a tensor that is not quantized",
        ),
        (
            [node("_contrib_quantized_flatten", ["w", "w_min", "w_max"], "f")],
            "is a parameter of type int8; expected codes",
        ),
    ],
)
def test_what_has_no_meaning_is_refused(nodes, message):
    with pytest.raises(FrontendError, match=message):
        imported(nodes, {"x": (1, 4)}, {"w": codes(4), **ends(1.0, "w")})


def test_a_network_that_ends_in_a_range_is_refused():
    with pytest.raises(FrontendError, match="gives the range of the quantized tensor 'q'"):
        imported([quantize(-1, 1)], {"x": (1, 4)}, heads=["q:1"])
