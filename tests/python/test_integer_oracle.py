"""The oracle itself, against TVM in float on numbers that are exact there."""

import numpy as np
import pytest
from tvm import relax

from integer_oracle import convolve, convolve_transposed, window_sums
from plain_tvm import build, run_one

NN = relax.op.nn


def whole_numbers(*shape):
    return np.random.default_rng(sum(shape)).integers(-9, 10, shape)


@pytest.mark.parametrize(
    ("operator", "data", "weight", "attrs"),
    [
        (NN.conv1d, (2, 3, 9), (4, 3, 3), {"strides": 2, "padding": [1, 2]}),
        (NN.conv2d, (2, 4, 7, 9), (6, 2, 3, 2), {"groups": 2, "dilation": [1, 2]}),
        (NN.conv2d, (1, 3, 7, 9), (2, 3, 3, 3), {"padding": [1, 0, 2, 3], "strides": [2, 3]}),
        (NN.conv3d, (1, 2, 4, 5, 6), (3, 2, 2, 2, 2), {"padding": 1}),
    ],
)
def test_convolve(operator, data, weight, attrs):
    x, w = whole_numbers(*data), whole_numbers(*weight)
    mod = build(lambda _bb, a, b: operator(a, b, **attrs), a=data, b=weight)
    result = run_one(mod, x.astype("float32"), w.astype("float32"))
    np.testing.assert_array_equal(result, convolve(x, w, **attrs))


@pytest.mark.parametrize(
    ("operator", "data", "weight", "attrs"),
    [
        (NN.conv1d_transpose, (2, 3, 5), (3, 4, 3), {"strides": 2, "padding": [1, 0]}),
        (NN.conv2d_transpose, (1, 4, 3, 5), (4, 3, 3, 2), {"groups": 2, "strides": [2, 3]}),
        (
            NN.conv2d_transpose,
            (1, 2, 3, 5),
            (2, 3, 3, 3),
            {"strides": 2, "padding": 1, "output_padding": 1},
        ),
    ],
)
def test_convolve_transposed(operator, data, weight, attrs):
    x, w = whole_numbers(*data), whole_numbers(*weight)
    mod = build(lambda _bb, a, b: operator(a, b, **attrs), a=data, b=weight)
    result = run_one(mod, x.astype("float32"), w.astype("float32"))
    np.testing.assert_array_equal(result, convolve_transposed(x, w, **attrs))


def test_window_sums():
    x = whole_numbers(1, 2, 5, 6)
    mod = build(
        lambda _bb, a: NN.avg_pool2d(a, (2, 2), (2, 1), (1, 0), count_include_pad=True),
        a=x.shape,
    )
    result = run_one(mod, x.astype("float32"))
    np.testing.assert_allclose(
        result, window_sums(x, (2, 2), strides=(2, 1), padding=(1, 0, 1, 0)) / 4, rtol=1e-6
    )
