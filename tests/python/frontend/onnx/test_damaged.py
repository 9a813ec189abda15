"""Damaged and absurd models end in an error of ours, whatever is wrong with them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnx_models import model, node
from quantized_models import custom, grid, quantizer, typed_model
from tvm_quant.errors import TvmQuantError
from tvm_quant.frontend import load

RNG = np.random.default_rng(0)


def qonnx() -> ModelProto:
    weights = {
        "w": RNG.normal(size=(4, 3, 3, 3)).astype("float32"),
        **grid(np.full((4, 1, 1, 1), 0.1), bits=4, prefix="w"),
        **grid(0.1, bits=8),
    }
    nodes = [
        quantizer("x", "qx"),
        quantizer("w", "qw", prefix="w"),
        node("Conv", ["qx", "qw"], "c"),
        quantizer("c"),
    ]
    return model(nodes, {"x": (1, 3, 5, 5)}, weights)


def qoperator() -> ModelProto:
    weights = {
        "xs": np.float32(0.1),
        "xz": np.uint8(3),
        "ys": np.float32(0.3),
        "yz": np.uint8(9),
        "w": np.ones((4, 3, 3, 3), "int8"),
        "ws": np.full(4, 0.1, "float32"),
        "wz": np.zeros(4, "int8"),
        "b": np.ones(4, "int32"),
    }
    inputs = ["q", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"]
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], "q"),
        node("QLinearConv", inputs, "c"),
        node("DequantizeLinear", ["c", "ys", "yz"]),
    ]
    return typed_model(nodes, {"x": ("float", (1, 3, 5, 5))}, weights, {"y": "float"}, opset=13)


MODELS = {"qonnx": qonnx, "qoperator": qoperator}


def loads_or_refuses(source) -> str | None:
    """Nothing but an error of ours may come out; its message, if it does."""
    try:
        load(source)
    except TvmQuantError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", MODELS)
def test_the_models_are_sound(name):
    assert loads_or_refuses(MODELS[name]()) is None


@settings(max_examples=40)
@given(name=st.sampled_from(sorted(MODELS)), share=st.floats(0, 1), flip=st.integers(0, 255))
def test_bytes_that_are_cut_off_or_changed(name, share, flip):
    data = MODELS[name]().SerializeToString()
    at = int(share * (len(data) - 1))
    loads_or_refuses(data[:at])
    loads_or_refuses(data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :])


@settings(max_examples=60)
@given(
    name=st.sampled_from(sorted(MODELS)),
    which=st.integers(0, 20),
    shape=st.lists(st.integers(0, 5), max_size=5),
    kind=st.sampled_from(["float32", "int8", "uint8", "int64", "float64", "bool"]),
    value=st.sampled_from([0, 1, -1, 1e9, np.nan, np.inf]),
)
def test_parameters_of_other_shapes_types_and_values(name, which, shape, kind, value):
    source = MODELS[name]()
    tensor = source.graph.initializer[which % len(source.graph.initializer)]
    with np.errstate(invalid="ignore"):
        array = np.full(shape, value).astype(kind)
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    loads_or_refuses(source)


@pytest.mark.parametrize("name", MODELS)
def test_every_missing_parameter_is_named(name):
    for index, tensor in enumerate(MODELS[name]().graph.initializer):
        source = MODELS[name]()
        del source.graph.initializer[index]
        message = loads_or_refuses(source)
        assert message is not None and f"'{tensor.name}'" in message


@pytest.mark.parametrize("name", MODELS)
def test_every_missing_input_of_a_node_is_refused_or_left_out(name):
    for position, original in enumerate(MODELS[name]().graph.node):
        for count in range(len(original.input)):
            source = MODELS[name]()
            del source.graph.node[position].input[count:]
            loads_or_refuses(source)


def test_a_cycle_is_named():
    weights = grid(0.1)
    nodes = [quantizer("b", "a"), quantizer("a", "b"), node("Add", ["a", "x"])]
    message = loads_or_refuses(model(nodes, {"x": (3,)}, weights))
    assert message is not None and "Tensor 'b' is used before any node computes it" in message


@settings(max_examples=40)
@given(bits=st.floats() | st.integers(-(2**40), 2**40), signed=st.integers(-3, 3))
def test_absurd_widths_are_refused_with_the_node(bits, signed):
    weights = {**grid(0.1), "q_bits": np.asarray(bits, "float64")}
    call = quantizer("x", signed=signed)
    call.name = "stem/quant"
    message = loads_or_refuses(model([call], {"x": (3,)}, weights))
    whole = np.float64(bits).is_integer() and 1 <= bits <= 32
    assert (message is None) == whole
    assert message is None or "'stem/quant'" in message


@pytest.mark.parametrize(
    "call",
    [
        custom("Quant", []),
        custom("Quant", ["x"], signed="yes"),
        custom("BipolarQuant", ["x", ""]),
        custom("Trunc", ["x", "s"]),
        custom("FloatQuant", ["x"] * 6),
        custom("MultiThreshold", ["x", "x"]),
        custom("RequantShift", ["x", "s", "s"], domain="PACTOps"),
        custom("Conv", ["x", "s"], domain="qonnx.custom_op.channels_last"),
        custom("MatMulNBits", ["x", "s", "s"], domain="com.microsoft"),
        custom("QLinearConcat", ["s"], domain="com.microsoft"),
        custom("QGemm", ["x"] * 9, domain="com.microsoft"),
        custom("QLinearAveragePool", ["x"] * 5, domain="com.microsoft"),
        helper.make_node("QuantizeLinear", ["x", "s"], ["y"], output_dtype=TensorProto.STRING),
        helper.make_node("DequantizeLinear", ["x", "s"], ["y"]),
        helper.make_node("MatMulInteger", ["x", "s"], ["y"]),
        helper.make_node("ConvInteger", ["x"], ["y"]),
        helper.make_node("QLinearConv", ["x"] * 3, ["y"]),
    ],
    ids=lambda call: call.op_type,
)
def test_calls_that_make_no_sense_are_refused_by_name(call):
    call.name = "the/node"
    message = loads_or_refuses(model([call], {"x": (1, 3)}, {"s": np.float32(0.1)}, opset=21))
    assert message is not None and "the/node" in message
