import numpy as np
import pytest
from tvm import relax, tirx

from integer_oracle import convolve, convolve_transposed
from tvm_quant.transform.tap_coverage import tap_coverage

NN = relax.op.nn


def call(operator, data, weight, **attrs):
    operands = [
        relax.Var(name, relax.TensorType(shape, "float32"))
        for name, shape in (("x", data), ("w", weight))
    ]
    return relax.BlockBuilder().normalize(operator(*operands, **attrs))


def measured(operator, data, weight, **attrs):
    """Mean of the result for data of ones and a weight that is one at a single tap."""
    taps = np.eye(int(np.prod(weight[2:]))).reshape(-1, *weight[2:])
    return [operator(np.ones(data), tap[None, None], **attrs).mean() for tap in taps]


@pytest.mark.parametrize(
    ("attrs", "size", "window"),
    [
        ({}, (5, 6), (3, 3)),
        ({"padding": [1, 0, 2, 3]}, (5, 6), (3, 2)),
        ({"padding": [1, 1, 1, 1], "strides": [2, 3]}, (6, 7), (3, 3)),
        ({"padding": [2, 2, 2, 2], "dilation": [2, 2]}, (5, 6), (3, 3)),
        ({"padding": [3, 3, 3, 3]}, (1, 2), (7, 7)),
    ],
)
def test_taps_of_a_convolution_meet_values_as_often_as_measured(attrs, size, window):
    shapes = (1, 1, *size), (1, 1, *window)
    expected = measured(convolve, *shapes, **attrs)
    np.testing.assert_allclose(tap_coverage(call(NN.conv2d, *shapes, **attrs)), expected)


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"strides": [2, 2]},
        {"strides": [2, 3], "padding": [1, 0, 0, 1]},
        {"strides": [2, 2], "padding": [1, 1, 1, 1], "output_padding": [1, 1]},
        {"dilation": [2, 1], "padding": [1, 1, 1, 1]},
    ],
)
def test_taps_of_a_transposed_convolution_meet_values_as_often_as_measured(attrs):
    shapes = (1, 1, 4, 5), (1, 1, 3, 2)
    expected = measured(convolve_transposed, *shapes, **attrs)
    np.testing.assert_allclose(tap_coverage(call(NN.conv2d_transpose, *shapes, **attrs)), expected)


def test_other_dimensions_and_layouts():
    wide = tap_coverage(call(NN.conv1d, (1, 4, 3), (4, 1, 3), padding=1, groups=4))
    np.testing.assert_allclose(wide, [2 / 3, 1, 2 / 3])
    last = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    found = tap_coverage(call(NN.conv2d, (1, 3, 9, 4), (3, 1, 4, 8), padding=[1, 0], **last))
    np.testing.assert_allclose(found, [2 / 3, 1, 2 / 3])


def test_borders_of_a_symbolic_size_are_left_out():
    size = tirx.Var("size", "int64")
    conv = call(NN.conv2d, (1, 1, size, 4), (1, 1, 3, 3), padding=1)
    np.testing.assert_allclose(tap_coverage(conv), np.tile([0.75, 1, 0.75], 3))
    deconv = call(NN.conv2d_transpose, (1, 1, size, size), (1, 1, 2, 2), strides=2)
    np.testing.assert_allclose(tap_coverage(deconv), np.full(4, 1 / 4))


def test_a_position_of_a_batch_meets_one_matrix():
    assert tap_coverage(call(relax.op.matmul, (2, 5), (5, 3))).tolist() == [1]
    assert tap_coverage(call(relax.op.matmul, (2, 3, 4, 5), (2, 3, 5, 3))).tolist() == [1 / 6] * 6
