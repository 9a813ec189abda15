"""FINN's MultiThreshold."""

import numpy as np
import pytest

from onnx_models import model, node
from quantized_models import (
    assert_means,
    contractions,
    custom,
    float_weights,
    integer,
)
from tvm_quant.errors import FrontendError
from tvm_quant.frontend import load
from tvm_quant.ir import bindings
from tvm_quant.op import is_threshold

RNG = np.random.default_rng(0)


def network(thresholds, **attributes):
    """Thresholds on the data, integer weights, a factor for each channel, thresholds on sums."""
    weights = {
        "t": np.float32([[-0.5, 0.1, 0.7]]),
        "w": RNG.integers(-3, 4, (8, 5)).astype("float32"),
        "k": np.float32([0.5, -0.25, 1.1, -3, 0]),
        "b": np.float32([0.1, 0, -1, 2, 0]),
        "u": thresholds,
    }
    nodes = [
        custom("MultiThreshold", ["x", "t"], "q", out_scale=1.0, out_bias=-1.0),
        node("MatMul", ["q", "w"], "m"),
        node("Mul", ["m", "k"], "f"),
        node("Add", ["f", "b"], "g"),
        custom("MultiThreshold", ["g", "u"], "y", **attributes),
    ]
    return model(nodes, {"x": (40, 8)}, weights)


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"out_scale": 2.0, "out_bias": -1.0, "out_dtype": "BIPOLAR"},
        {"out_scale": 0.3, "out_bias": 0.7},
    ],
)
@pytest.mark.parametrize("channels", [1, 5])
def test_thresholds_of_sums(attributes, channels):
    thresholds = np.sort(RNG.normal(0, 3, (channels, 3)).astype("float32"), axis=1)
    thresholds[0, 1] = 0
    source = network(thresholds, **attributes)
    x = RNG.normal(size=(40, 8)).astype("float32")
    (expected,) = assert_means(source, 1e-7, x=x)
    assert np.unique(expected).size == 4


def test_sums_are_compared_as_integers_with_integer_weights():
    mod = integer(network(np.float32([[0]])))
    assert not float_weights(mod)
    assert {str(call.ty.dtype) for call in contractions(mod)} == {"int32"}
    compared = [b.value.args[0] for b in bindings(mod["main"]) if is_threshold(b.value)]
    assert [str(data.ty.dtype) for data in compared] == ["float32", "int32"]


def test_thresholds_for_other_channels_than_there_are_refused():
    with pytest.raises(FrontendError, match="thresholds are for 3 channels; the data has shape"):
        load(network(np.zeros((3, 2), "float32")))
