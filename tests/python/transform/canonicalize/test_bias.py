import numpy as np
import pytest
from tvm import relax

from prepared import assert_leaves, assert_prepares, const, nn

c = relax.const
X = {"x": (2, 4, 6, 6)}
W, B = const(6, 4, 3, 3), const(6, seed=2)


@pytest.mark.parametrize("shape", [(6, 1, 1), (1, 6, 1, 1), (6, 4, 4), (1, 6, 4, 4)])
def test_a_bias_of_every_shape_is_one_value_per_channel_in_full_rank(shape):
    value = np.array(np.broadcast_to(B.reshape(6, 1, 1), shape[-3:])).reshape(shape)
    assert_prepares(
        lambda bb, x: relax.op.add(bb.emit(nn.conv2d(x, c(W))), c(value)),
        lambda bb, x: relax.op.add(bb.emit(nn.conv2d(x, c(W))), c(B.reshape(1, 6, 1, 1))),
        **X,
    )


def test_a_bias_that_is_reshaped_on_the_left_or_subtracted_is_a_bias():
    def before(bb, x):
        shaped = bb.emit(relax.op.reshape(c(B), (1, 6, 1, 1)))
        added = bb.emit(relax.op.add(shaped, bb.emit(nn.conv2d(x, c(W)))))
        return relax.op.subtract(added, c(np.float32([1])))

    def after(bb, x):
        return relax.op.add(bb.emit(nn.conv2d(x, c(W))), c((B - 1).reshape(1, 6, 1, 1)))

    assert_prepares(before, after, **X)


def test_a_number_behind_a_convolution_is_a_bias_for_every_channel():
    assert_prepares(
        lambda bb, x: relax.op.add(bb.emit(nn.conv2d(x, c(W))), c(np.float32(2))),
        lambda bb, x: relax.op.add(bb.emit(nn.conv2d(x, c(W))), c(np.full((1, 6, 1, 1), 2, "f"))),
        **X,
    )


def test_a_constant_along_the_columns_of_an_image_is_no_bias():
    assert_leaves(lambda bb, x: relax.op.add(bb.emit(nn.conv2d(x, c(W))), c(const(4))), **X)


@pytest.mark.parametrize("shape", [(6,), (1, 6), (1, 1, 6)])
def test_the_bias_of_a_matrix_product_is_a_vector(shape):
    def product(bb, x):
        return bb.emit(relax.op.matmul(x, c(const(4, 6))))

    assert_prepares(
        lambda bb, x: relax.op.add(product(bb, x), c(B.reshape(shape))),
        lambda bb, x: relax.op.add(product(bb, x), c(B)),
        x=(2, 3, 4),
    )


def test_a_mask_on_a_product_of_activations_is_no_bias():
    def body(bb, x, y):
        return relax.op.add(bb.emit(relax.op.matmul(x, y)), c(const(1, 3, 5)))

    assert_leaves(body, x=(2, 3, 4), y=(2, 4, 5))
