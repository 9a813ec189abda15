import numpy as np
import pytest
from tvm import relax

from prepared import assert_leaves, assert_prepares, const, nn

c, op = relax.const, relax.op
X = {"x": (2, 3, 4, 4)}
SLOPE = const(3)


def written_out(slope):
    def body(bb, x):
        negative = bb.emit(op.multiply(c(slope), x))
        return op.where(bb.emit(op.greater(x, c(np.float32(0)))), x, negative)

    return body


def test_a_prelu_written_as_a_choice_is_prelu():
    assert_prepares(
        written_out(SLOPE.reshape(3, 1, 1)), lambda bb, x: nn.prelu(x, c(SLOPE), axis=1), **X
    )


@pytest.mark.parametrize("slope", [np.float32(0.25), np.full((3, 1, 1), 0.25, "float32")])
def test_one_slope_is_leaky_relu(slope):
    assert_prepares(written_out(slope), lambda bb, x: nn.leakyrelu(x, 0.25), **X)


def test_equal_slopes_are_leaky_relu():
    slopes = c(np.full(3, 0.5, "float32"))
    assert_prepares(
        lambda bb, x: nn.prelu(x, slopes, axis=1), lambda bb, x: nn.leakyrelu(x, 0.5), **X
    )


def test_another_choice_stays():
    def body(bb, x):
        return op.where(bb.emit(op.greater(x, c(np.float32(1)))), x, bb.emit(op.tanh(x)))

    assert_leaves(body, **X)


def test_adaptive_pooling_to_one_cell_is_a_mean():
    assert_prepares(
        lambda bb, x: nn.adaptive_avg_pool2d(x, (1, 1)),
        lambda bb, x: op.mean(x, [2, 3], keepdims=True),
        **X,
    )


def test_adaptive_pooling_to_more_cells_stays():
    assert_leaves(lambda bb, x: nn.adaptive_avg_pool2d(x, (2, 2)), **X)
