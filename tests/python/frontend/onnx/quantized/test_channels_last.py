"""QONNX's operators on tensors whose channels stand last."""

import numpy as np
import pytest

from onnx_models import model, node
from quantized_models import (
    assert_means,
    custom,
    float_weights,
    grid,
    integer,
    quantizer,
    simulated,
)

RNG = np.random.default_rng(0)
LAST = "qonnx.custom_op.channels_last"


def network(*, group=1, strides=(1, 1), kernel=(3, 3)):
    weight = RNG.normal(size=(6, *kernel, 3 // group)).astype("float32")
    weights = {
        "w": weight,
        "b": RNG.normal(size=6).astype("float32"),
        "none": np.float32([]),
        **grid(0.1, bits=8),
        **grid(0.3, bits=4, prefix="w"),
        **grid(0.2, bits=5, prefix="y"),
        "scales": np.float32([1, 2, 2, 1]),
    }
    attributes = {"kernel_shape": kernel, "pads": [1, 1, 1, 1], "strides": strides}
    nodes = [
        quantizer("x", "qx"),
        quantizer("w", "qw", prefix="w", narrow=1),
        custom("Conv", ["qx", "qw", "b"], "c", domain=LAST, group=group, **attributes),
        node("LeakyRelu", ["c"], "r", alpha=0.125),
        quantizer("r", "qr", prefix="y"),
        custom("MaxPool", ["qr"], "p", domain=LAST, kernel_shape=[2, 2], strides=[2, 2]),
        node(
            "Resize",
            ["p", "none", "scales"],
            mode="nearest",
            nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        ),
    ]
    return model(nodes, {"x": (2, 8, 8, 3)}, weights)


@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize(("strides", "kernel"), [((1, 1), (3, 3)), ((2, 1), (1, 3))])
def test_convolution_pool_and_resize(group, strides, kernel):
    source = network(group=group, strides=strides, kernel=kernel)
    assert_means(source, x=RNG.normal(size=(2, 8, 8, 3)).astype("float32"))
    assert not float_weights(integer(source))


def test_batch_normalization():
    parameters = RNG.uniform(0.5, 2, (4, 3)).astype("float32")
    weights = dict(zip("sbmv", parameters, strict=True))
    call = custom("BatchNormalization", ["x", *"sbmv"], domain=LAST, epsilon=1e-3)
    source = model([call], {"x": (2, 4, 5, 3)}, weights)
    x = RNG.normal(size=(2, 4, 5, 3)).astype("float32")
    scale, bias, mean, variance = parameters.astype("float64")
    expected = (x - mean) / np.sqrt(variance + 1e-3) * scale + bias
    np.testing.assert_allclose(simulated(source, x=x)[0], expected, rtol=1e-5, atol=1e-6)
