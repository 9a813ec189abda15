"""Deeploy's RequantShift."""

import numpy as np
import pytest
from onnx import helper, numpy_helper

from onnx_models import model, node
from quantized_models import assert_means, contractions, float_weights, integer
from tvm_quant.errors import FrontendError
from tvm_quant.frontend import load

RNG = np.random.default_rng(0)


def requant(data, output, prefix, *, bits=16, levels=256, signed=0, domain="PACTOps", name=None):
    attributes = {"div": 2.0**bits, "n_levels_out": [float(levels)], "signed": [float(signed)]}
    tensors = {k: numpy_helper.from_array(np.float32(v)) for k, v in attributes.items()}
    inputs = [data, f"{prefix}mul", f"{prefix}add"]
    return helper.make_node("RequantShift", inputs, [output], name=name, domain=domain, **tensors)


def network(*, signed=0, domain="PACTOps", levels=256):
    weights = {
        "w": RNG.integers(-8, 9, (6, 3, 3, 3)).astype("float32"),
        "v": RNG.integers(-100, 101, (24, 5)).astype("float32"),
        "amul": RNG.integers(100, 9000, (6, 1, 1)).astype("float32"),
        "aadd": RNG.integers(-5_000_000, 5_000_000, (6, 1, 1)).astype("float32"),
        "bmul": np.float32(517),
        "badd": np.float32(0),
        "shape": np.int64([1, 24]),
    }
    nodes = [
        node("Conv", ["x", "w"], "c", pads=[1, 1, 1, 1]),
        requant("c", "a", "a", signed=signed, domain=domain, levels=levels),
        node("MaxPool", ["a"], "p", kernel_shape=[2, 2], strides=[2, 2]),
        requant("p", "q", "b", bits=9, signed=1),
        node("Add", ["p", "q"], "s"),
        requant("s", "t", "b", bits=10, signed=1),
        node("Reshape", ["t", "shape"], "r"),
        node("MatMul", ["r", "v"], "m"),
        requant("m", "y", "b", bits=18, signed=1),
    ]
    return model(nodes, {"x": (1, 3, 4, 4)}, weights, opset=13)


@pytest.mark.parametrize("signed", [0, 1])
@pytest.mark.parametrize("domain", ["PACTOps", ""])
def test_every_integer_is_the_one_of_the_document(signed, domain):
    source = network(signed=signed, domain=domain)
    for low, high in ((0, 256), (-128, 128)):
        x = RNG.integers(low, high, (1, 3, 4, 4)).astype("float32")
        (expected,) = assert_means(source, 0, x=x)
        assert np.unique(expected).size > 2


def test_levels_that_are_no_power_of_two():
    x = RNG.integers(0, 256, (1, 3, 4, 4)).astype("float32")
    assert_means(network(levels=200), 0, x=x)


def test_ties_go_up():
    weights = {"amul": np.float32(1), "aadd": np.float32(0)}
    source = model([requant("x", "y", "a", bits=2, signed=1)], {"x": (1, 11)}, weights)
    x = np.arange(-6, 5, dtype="float32")[None]
    (expected,) = assert_means(source, 0, x=x)
    assert expected.tolist() == [[-1, -1, -1, -1, 0, 0, 0, 0, 1, 1, 1]]


def test_no_layer_is_left_in_float():
    mod = integer(network())
    assert not float_weights(mod)
    assert {str(call.ty.dtype) for call in contractions(mod)} == {"int32"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"div": 0.0}, "divides by 0"),
        ({"n_levels_out": 1.0}, "has 1 levels"),
        ({"signed": None}, "lacks the attribute 'signed'"),
        ({"div": [2.0, 4.0]}, "attribute 'div' has 2 values"),
    ],
)
def test_attributes_that_make_no_sense_are_refused(change, message):
    source = network()
    source.graph.node[1].name = "block/requant"
    attributes = source.graph.node[1].attribute
    for name, value in change.items():
        (old,) = [a for a in attributes if a.name == name]
        attributes.remove(old)
        if value is not None:
            tensor = numpy_helper.from_array(np.float32(value))
            attributes.append(helper.make_attribute(name, tensor))
    with pytest.raises(FrontendError, match=rf"'block/requant'.*{message}"):
        load(source)
