"""QuantizeLinear, DequantizeLinear and Clip between them."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from tvm import relax

from onnx_models import node, operators
from quantized_models import (
    contractions,
    float_weights,
    integer,
    onnxruntime_unoptimized,
    realized,
    simulated,
    typed_model,
)
from tvm_quant.errors import FrontendError
from tvm_quant.frontend import load
from tvm_quant.ir import bindings, constant_value
from tvm_quant.op import is_simulated, spec_of

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 5, 5)).astype("float32")
F32 = {"y": "float"}


def agrees(source, limit=0.0, **feeds):
    """Float and integers give what ONNX Runtime does, node by node."""
    expected = onnxruntime_unoptimized(source, **feeds)
    for got in (simulated(source, **feeds), realized(source, **feeds)):
        for g, w in zip(got, expected, strict=True):
            assert g.dtype == w.dtype
            np.testing.assert_allclose(g, w, rtol=limit, atol=limit)
    return expected


def specs(source):
    mod, _ = load(source)
    return [spec_of(b.value) for b in bindings(mod["main"]) if is_simulated(b.value)]


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_quantize_and_dequantize_become_one_quantizer(kind, per_channel):
    zero = 3 if kind.startswith("u") else -2
    scale = np.float32([0.1, 0.2, 0.3] if per_channel else 0.1)
    weights = {"s": scale, "z": np.full(scale.shape, zero, kind)}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "q"),
        node("DequantizeLinear", ["q", "s", "z"]),
    ]
    source = typed_model(nodes, {"x": ("float", X.shape)}, weights, F32)
    agrees(source, x=X)
    (spec,) = specs(source)
    assert (spec.dtype, spec.axis) == (kind, 1 if per_channel else None)
    assert operators(load(source)[0]) == {"tvm_quant.simulated_quantize"}


@pytest.mark.parametrize("opset", [10, 13, 19, 21, 23])
def test_every_version_without_a_zero_point(opset):
    nodes = [node("QuantizeLinear", ["x", "s"], "q"), node("DequantizeLinear", ["q", "s"])]
    source = typed_model(nodes, {"x": ("float", X.shape)}, {"s": np.float32(0.1)}, F32, opset=opset)
    agrees(source, x=X)


@pytest.mark.parametrize("kind", ["INT4", "UINT4"])
def test_four_bits(kind):
    zero = helper.make_tensor("z", getattr(TensorProto, kind), [], [2])
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "q"),
        node("DequantizeLinear", ["q", "s", "z"]),
    ]
    source = typed_model(
        nodes, {"x": ("float", X.shape)}, {"s": np.float32(0.3), "z": zero}, F32, opset=21
    )
    agrees(source, x=X)
    assert specs(source)[0].bits == 4


def test_codes_as_inputs_and_outputs_of_the_network():
    weights = {"s": np.float32(0.1), "z": np.uint8(128), "t": np.float32(0.2), "v": np.uint8(7)}
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], "a"),
        node("Relu", ["a"], "b"),
        node("QuantizeLinear", ["b", "t", "v"]),
    ]
    source = typed_model(nodes, {"x": ("uint8", (2, 3))}, weights, {"y": "uint8"})
    x = RNG.integers(0, 256, (2, 3)).astype("uint8")
    agrees(source, x=x)
    assert "float32" not in {str(b.var.ty.dtype) for b in bindings(integer(source)["main"])}


def convolution(weight_kind="int8", bias=True, clip=None, **grids):
    """DQ(Q(x)) with DQ(w), and an int32 bias, into QuantizeLinear."""
    weight = RNG.integers(-7, 8, (4, 3, 3, 3)).astype("int8")
    scale = np.float32([0.0213, 0.0317, 0.0531, 0.0119])
    weights = {
        "s": np.float32(0.0517),
        "z": np.uint8(120),
        "t": np.float32(0.0713),
        "v": np.uint8(100),
        "w": weight,
        "ws": scale,
        "wz": np.zeros(4, "int8"),
        "b": np.int32([100, -2000, 5, 0]),
        "bs": np.float32(0.0517) * scale,
        "bz": np.zeros(4, "int32"),
        "low": np.int8(-7),
        "high": np.int8(7),
    }
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "xq"),
        node("DequantizeLinear", ["xq", "s", "z"], "xd"),
        *([node("Clip", ["w", "low", "high"], "wc")] if clip else []),
        node("DequantizeLinear", ["wc" if clip else "w", "ws", "wz"], "wd", axis=0),
        node("DequantizeLinear", ["b", "bs", "bz"], "bd", axis=0),
        node("Conv", ["xd", "wd", "bd"], "c", pads=[1, 1, 1, 1]),
        node("Relu", ["c"], "r"),
        node("QuantizeLinear", ["r", "t", "v"], "yq"),
        node("DequantizeLinear", ["yq", "t", "v"]),
    ]
    return typed_model(nodes, {"x": ("float", X.shape)}, weights, F32)


@pytest.mark.parametrize("clip", [False, True])
def test_a_convolution_with_a_bias_of_32_bits(clip):
    source = convolution(clip=clip)
    agrees(source, x=X)
    mod = integer(source)
    (call,) = contractions(mod)
    assert str(call.ty.dtype) == "int32" and not float_weights(mod)


def test_weights_get_the_fewest_bits_that_hold_them():
    assert [spec.bits for spec in specs(convolution())] == [8, 4, 8]


def test_clip_of_codes_narrows_the_quantizer():
    weights = {
        "s": np.float32(0.1),
        "z": np.int8(0),
        "low": np.int8(-7),
        "high": np.int8(7),
    }
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "q"),
        node("Clip", ["q", "low", "high"], "c"),
        node("DequantizeLinear", ["c", "s", "z"]),
    ]
    source = typed_model(nodes, {"x": ("float", X.shape)}, weights, F32)
    agrees(source, x=X)
    (spec,) = specs(source)
    assert (spec.bits, spec.narrow, spec.qmin, spec.qmax) == (4, True, -7, 7)


def test_clip_to_odd_bounds():
    weights = {"s": np.float32(0.1), "z": np.uint8(9), "low": np.uint8(3), "high": np.uint8(20)}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "q"),
        node("Clip", ["q", "low", "high"], "c"),
        node("DequantizeLinear", ["c", "s", "z"]),
    ]
    source = typed_model(nodes, {"x": ("float", X.shape)}, weights, F32)
    agrees(source, x=X)
    assert (specs(source)[0].qmin, specs(source)[0].qmax) == (3, 20)


def test_codes_that_are_moved_between_the_quantizers():
    weights = {"s": np.float32(0.1), "z": np.int8(5), "shape": np.int64([2, -1])}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "q"),
        node("MaxPool", ["q"], "p", kernel_shape=[2, 2]),
        node("Transpose", ["p"], "t", perm=[0, 2, 3, 1]),
        node("Reshape", ["t", "shape"], "r"),
        node("DequantizeLinear", ["r", "s", "z"]),
    ]
    source = typed_model(nodes, {"x": ("float", X.shape)}, weights, F32)
    agrees(source, x=X)
    assert "quantize" not in operators(load(source)[0])


def test_another_grid_behind_than_before():
    weights = {
        "s": np.float32(0.1),
        "z": np.int8(5),
        "t": np.float32(0.3),
        "v": np.int8(-1),
    }
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "q"),
        node("DequantizeLinear", ["q", "t", "v"]),
    ]
    agrees(typed_model(nodes, {"x": ("float", X.shape)}, weights, F32), x=X)


def test_blocks_of_weights_stay_in_float_with_a_reason():
    codes = RNG.integers(-8, 8, (8, 3)).astype("int8")
    scale = RNG.uniform(0.1, 1, (2, 3)).astype("float32")
    weights = {"w": codes, "s": scale, "z": np.zeros((2, 3), "int8")}
    nodes = [
        node("DequantizeLinear", ["w", "s", "z"], "wd", axis=0, block_size=4),
        node("MatMul", ["x", "wd"]),
    ]
    source = typed_model(nodes, {"x": ("float", (2, 8))}, weights, F32)
    x = RNG.normal(size=(2, 8)).astype("float32")
    agrees(source, 1e-5, x=x)
    (reason,) = load(source)[0]["main"].attrs["tvm_quant.float_reasons"].values()
    assert "in blocks" in reason


def test_scales_that_are_computed_at_run_time_stay_relax_operators():
    nodes = [
        node("DynamicQuantizeLinear", ["x"], "q"),
        node("DequantizeLinear", ["q", "s", "z"]),
    ]
    nodes[0].output.extend(["s", "z"])
    agrees(typed_model(nodes, {"x": ("float", X.shape)}, {}, F32), x=X)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"s": np.float32([0.1, 0.2]), "z": np.int8([0, 0])}, "has 2 elements for axis 1"),
        ({"s": np.float32(-1), "z": np.int8(0)}, "scale holds -1.0"),
        ({"s": np.float32(1), "z": np.float32(0)}, "codes of type float32 are not supported"),
    ],
)
def test_grids_that_make_no_sense_are_refused(weights, message):
    quantize = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="head/quant")
    nodes = [quantize, node("DequantizeLinear", ["q", "s", "z"])]
    with pytest.raises(FrontendError, match=rf"'head/quant'.*{message}"):
        load(typed_model(nodes, {"x": ("float", X.shape)}, weights, F32))


def test_quantized_weights_alone_are_stored_as_integers():
    weight = RNG.integers(-127, 128, (8, 3)).astype("int8")
    nodes = [node("DequantizeLinear", ["w", "s"], "wd"), node("MatMul", ["x", "wd"])]
    source = typed_model(nodes, {"x": ("float", (2, 8))}, {"w": weight, "s": np.float32(0.1)}, F32)
    agrees(source, 1e-5, x=RNG.normal(size=(2, 8)).astype("float32"))
    stored = [
        known
        for b in bindings(integer(source)["main"])
        if isinstance(b.value, relax.Call)
        for arg in b.value.args
        if (known := constant_value(arg)) is not None and known.size > 1
    ]
    assert [array.dtype for array in stored] == [np.int8]


@pytest.mark.parametrize("kind", ["float16"])
def test_scales_of_half_precision_give_the_type_of_the_result(kind):
    weights = {"s": np.asarray(0.125, kind), "z": np.int8(3)}
    nodes = [
        node("Cast", ["x"], "h", to=TensorProto.FLOAT16),
        node("QuantizeLinear", ["h", "s", "z"], "q"),
        node("DequantizeLinear", ["q", "s", "z"], "d"),
        node("Cast", ["d"], "y", to=TensorProto.FLOAT),
    ]
    source = typed_model(nodes, {"x": ("float", X.shape)}, weights, F32)
    agrees(source, x=np.round(X * 64) / 64)


def test_a_cast_of_quantized_values_to_integers_cuts_fractions_off():
    weights = {"s": np.float32(0.3), "z": np.int8(0)}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "q"),
        node("DequantizeLinear", ["q", "s", "z"], "d"),
        node("Cast", ["d"], "y", to=TensorProto.INT32),
    ]
    agrees(typed_model(nodes, {"x": ("float", X.shape)}, weights, {"y": "int32"}), x=X)
