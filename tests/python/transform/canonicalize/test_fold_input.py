"""Batch norm, scaling and normalisation in front of a contraction."""

import numpy as np
import pytest
from tvm import relax

from prepared import assert_leaves, assert_prepares, const, names, nn, prepared

c = relax.const
X = {"x": (2, 4, 6, 6)}
W, S, T = const(6, 4, 3, 3), const(4, seed=2), const(4, seed=3)
COLUMN, ROW = (1, 4, 1, 1), (1, 6, 1, 1)


def affine(bb, x):
    scaled = bb.emit(relax.op.multiply(x, c(S.reshape(COLUMN))))
    return bb.emit(relax.op.add(scaled, c(T.reshape(COLUMN))))


def test_scale_and_shift_fold_into_a_convolution_without_padding():
    def after(bb, x):
        conv = bb.emit(nn.conv2d(x, c(W * S.reshape(COLUMN))))
        return relax.op.add(conv, c((W * T.reshape(COLUMN)).sum(axis=(1, 2, 3)).reshape(ROW)))

    assert_prepares(lambda bb, x: nn.conv2d(affine(bb, x), c(W)), after, **X)


def test_a_shift_in_front_of_a_padded_convolution_stays_and_so_does_the_scale_before_it():
    assert_leaves(lambda bb, x: nn.conv2d(affine(bb, x), c(W), padding=1), **X)


def test_a_scale_in_front_of_a_padded_convolution_folds():
    def before(bb, x):
        return nn.conv2d(bb.emit(relax.op.multiply(x, c(S.reshape(COLUMN)))), c(W), padding=1)

    assert_prepares(before, lambda bb, x: nn.conv2d(x, c(W * S.reshape(COLUMN)), padding=1), **X)


def test_a_scale_behind_a_shift_folds_into_a_padded_convolution_alone():
    def before(bb, x):
        shifted = bb.emit(relax.op.add(x, c(T.reshape(COLUMN))))
        return nn.conv2d(bb.emit(relax.op.multiply(shifted, c(np.float32(2)))), c(W), padding=1)

    def after(bb, x):
        return nn.conv2d(bb.emit(relax.op.add(x, c(T.reshape(COLUMN)))), c(W * 2), padding=1)

    assert_prepares(before, after, **X)


def test_the_normalisation_of_an_image_folds():
    mean, deviation = np.float32([127.5]), np.float32(64)

    def before(bb, x):
        centred = bb.emit(relax.op.subtract(x, c(mean)))
        return nn.conv2d(bb.emit(relax.op.divide(centred, c(deviation))), c(W))

    assert names(prepared(before, **X)) == ["nn.conv2d", "add"]


def test_an_affine_tensor_that_someone_else_reads_is_left_alone():
    def body(bb, x):
        shared = affine(bb, x)
        return nn.conv2d(shared, c(W)), nn.relu(shared)

    assert_leaves(body, **X)


def test_the_bias_of_a_contraction_stays_with_it():
    def body(bb, x):
        first = bb.emit(nn.conv2d(x, c(W)))
        biased = bb.emit(relax.op.add(first, c(const(*ROW, seed=5))))
        return nn.conv2d(biased, c(const(2, 6, 1, 1)))

    assert_leaves(body, **X)


def test_shared_weights_are_left_alone():
    def body(bb, x):
        shared = c(const(4, 4, 1, 1))
        first = bb.emit(nn.conv2d(bb.emit(relax.op.multiply(x, c(np.float32(2)))), shared))
        return nn.conv2d(bb.emit(nn.relu(first)), shared)

    assert_leaves(body, **X)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_batch_norm_folds_into_grouped_and_depthwise_convolutions(groups):
    def body(bb, x):
        parameters = [c(const(4, seed=seed)) for seed in (4, 5, 6, 7)]
        norm = relax.TupleGetItem(bb.emit(nn.batch_norm(x, *parameters, 1, training=False)), 0)
        return nn.conv2d(bb.emit(norm), c(const(8, 4 // groups, 3, 3)), groups=groups)

    assert names(prepared(body, **X)) == ["nn.conv2d", "add"]


def test_a_transposed_convolution_takes_the_scale_but_not_the_shift():
    weight = const(4, 3, 3, 3)

    def scaled(bb, x):
        product = bb.emit(relax.op.multiply(x, c(S.reshape(COLUMN))))
        return nn.conv2d_transpose(product, c(weight), groups=2)

    after = weight * S.reshape(4, 1, 1, 1)
    assert_prepares(scaled, lambda bb, x: nn.conv2d_transpose(x, c(after), groups=2), **X)
    assert_leaves(lambda bb, x: nn.conv2d_transpose(affine(bb, x), c(weight), groups=2), **X)


def test_scale_and_shift_fold_into_a_matrix_product():
    weight = const(4, 6)

    def before(bb, x):
        shifted = bb.emit(relax.op.add(bb.emit(relax.op.multiply(x, c(S))), c(T)))
        return relax.op.matmul(shifted, c(weight))

    def after(bb, x):
        return relax.op.add(bb.emit(relax.op.matmul(x, c(S[:, None] * weight))), c(T @ weight))

    assert_prepares(before, after, x=(3, 4))


def test_a_constant_that_varies_over_the_image_is_left_alone():
    def body(bb, x):
        return nn.conv2d(bb.emit(relax.op.multiply(x, c(const(1, 4, 6, 6)))), c(W))

    assert_leaves(body, **X)
