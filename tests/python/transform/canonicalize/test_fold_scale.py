"""Batch norm and products behind every kind of contraction."""

import numpy as np
import pytest
from tvm import relax

from prepared import assert_leaves, assert_prepares, const, names, nn, prepared
from tvm_quant.ir import op_name

c = relax.const
X = {"x": (2, 4, 6, 6)}
W, S, T = const(6, 4, 3, 3), const(6, seed=2), const(6, seed=3)
ROW = (1, 6, 1, 1)


def batch_norm(bb, x, channels, axis=1):
    parameters = [c(const(channels, seed=seed)) for seed in (4, 5, 6, 7)]
    return relax.TupleGetItem(bb.emit(nn.batch_norm(x, *parameters, axis, training=False)), 0)


def test_a_product_behind_a_convolution_goes_into_its_weights():
    def before(bb, x):
        return relax.op.multiply(bb.emit(nn.conv2d(x, c(W))), c(S.reshape(ROW)))

    def after(bb, x):
        return nn.conv2d(x, c(W * S.reshape(6, 1, 1, 1)))

    assert_prepares(before, after, **X)


def test_a_product_behind_the_bias_scales_the_bias_too():
    def before(bb, x):
        biased = bb.emit(relax.op.add(bb.emit(nn.conv2d(x, c(W))), c(T.reshape(ROW))))
        return relax.op.multiply(biased, c(S.reshape(ROW)))

    def after(bb, x):
        conv = bb.emit(nn.conv2d(x, c(W * S.reshape(6, 1, 1, 1))))
        return relax.op.add(conv, c((T * S).reshape(ROW)))

    assert_prepares(before, after, **X)


def test_a_number_behind_a_convolution_goes_into_its_weights():
    def before(bb, x):
        return relax.op.divide(bb.emit(nn.conv2d(x, c(W))), c(np.float32(4)))

    assert_prepares(before, lambda bb, x: nn.conv2d(x, c(W / 4)), **X)


def test_a_product_behind_a_matrix_product_scales_its_columns():
    def before(bb, x):
        return relax.op.multiply(bb.emit(relax.op.matmul(x, c(const(4, 6)))), c(S))

    assert_prepares(before, lambda bb, x: relax.op.matmul(x, c(const(4, 6) * S)), x=(3, 4))


def test_a_convolution_that_someone_else_reads_is_left_alone():
    def body(bb, x):
        conv = bb.emit(nn.conv2d(x, c(W)))
        return relax.op.multiply(conv, c(S.reshape(ROW))), nn.relu(conv)

    assert_leaves(body, **X)


def test_batch_norm_behind_a_convolution_that_someone_else_reads_is_a_product_and_a_sum():
    def body(bb, x):
        conv = bb.emit(nn.conv2d(x, c(W)))
        return batch_norm(bb, conv, 6), nn.relu(conv)

    operators = names(prepared(body, **X))
    assert operators == ["nn.conv2d", "multiply", "add", "nn.relu"]


def test_a_product_with_a_whole_image_is_left_alone():
    assert_leaves(
        lambda bb, x: relax.op.multiply(bb.emit(nn.conv2d(x, c(W))), c(const(1, 6, 4, 4))), **X
    )


def test_numbers_behind_shared_weights_are_left_in_place():
    def body(bb, x):
        shared = c(const(4, 4, 1, 1))
        once = bb.emit(relax.op.multiply(bb.emit(nn.conv2d(x, shared)), c(np.float32(16))))
        return nn.conv2d(once, shared)

    mod = prepared(body, **X)
    first, _, second = mod["main"].body.blocks[0].bindings
    assert first.value.args[1].same_as(second.value.args[1])


def test_batch_norm_behind_shared_weights_folds_and_equal_results_are_shared_again():
    def siamese(bb, x):
        shared = c(W)
        convolutions = [bb.emit(nn.conv2d(tower, shared)) for tower in (x, nn.relu(x))]
        return relax.op.add(*(bb.emit(batch_norm(bb, conv, 6)) for conv in convolutions))

    mod = prepared(siamese, **X)
    calls = [b.value for b in mod["main"].body.blocks[0].bindings]
    weights = [call.args[1] for call in calls if op_name(call) == "relax.nn.conv2d"]
    assert names(mod).count("multiply") == 0
    assert weights[0].same_as(weights[1])


def convolution(bb, x, kind):
    """One convolution of each kind with 6 output channels, and the axis of its channels."""
    if kind == "depthwise":
        return nn.conv2d(x, c(const(8, 1, 3, 3)), groups=4, padding=1), 8
    if kind == "grouped":
        return nn.conv2d(x, c(const(6, 2, 3, 3)), groups=2, strides=2), 6
    if kind == "transposed":
        return nn.conv2d_transpose(x, c(const(4, 6, 3, 3)), strides=2), 6
    if kind == "grouped transposed":
        return nn.conv2d_transpose(x, c(const(4, 3, 3, 3)), strides=2, groups=2), 6
    return nn.conv2d(x, c(const(6, 4, 3, 3)), dilation=2, padding=[0, 1, 2, 3]), 6


@pytest.mark.parametrize(
    "kind", ["depthwise", "grouped", "transposed", "grouped transposed", "dilated"]
)
def test_batch_norm_folds_into_every_kind_of_convolution(kind):
    def body(bb, x):
        conv, channels = convolution(bb, x, kind)
        return batch_norm(bb, bb.emit(conv), channels)

    operators = names(prepared(body, **X))
    assert operators == ["nn.conv2d_transpose" if "transposed" in kind else "nn.conv2d", "add"]


@pytest.mark.parametrize(("rank", "operator"), [(1, nn.conv1d), (3, nn.conv3d)])
def test_batch_norm_folds_in_one_and_three_dimensions(rank, operator):
    def body(bb, x):
        return batch_norm(bb, bb.emit(operator(x, c(const(6, 4, *[3] * rank)), padding=1)), 6)

    assert names(prepared(body, x=(2, 4, *[5] * rank))) == [f"nn.conv{rank}d", "add"]


@pytest.mark.parametrize("rank", [1, 3])
def test_batch_norm_folds_into_transposed_convolutions_of_one_and_three_dimensions(rank):
    operator = nn.conv1d_transpose if rank == 1 else nn.conv3d_transpose

    def body(bb, x):
        return batch_norm(bb, bb.emit(operator(x, c(const(4, 3, *[3] * rank)), groups=2)), 6)

    assert names(prepared(body, x=(2, 4, *[5] * rank))) == [f"nn.conv{rank}d_transpose", "add"]


def test_batch_norm_folds_into_channels_last_convolutions():
    def body(bb, x):
        layout = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
        return batch_norm(bb, bb.emit(nn.conv2d(x, c(const(3, 3, 4, 6)), **layout)), 6, axis=3)

    mod = prepared(body, x=(2, 6, 6, 4))
    assert names(mod) == ["nn.conv2d", "add"]
    assert tuple(mod["main"].body.blocks[0].bindings[1].value.args[1].value.shape) == (1, 1, 1, 6)


def test_batch_norm_folds_into_a_matrix_product_with_a_bias():
    def body(bb, x):
        product = bb.emit(relax.op.matmul(x, c(const(4, 6))))
        return batch_norm(bb, bb.emit(relax.op.add(product, c(const(6, seed=8)))), 6)

    assert names(prepared(body, x=(3, 4))) == ["matmul", "add"]


def test_two_batch_norms_in_a_row_fold_both():
    def body(bb, x):
        conv = bb.emit(nn.conv2d(x, c(W)))
        return batch_norm(bb, bb.emit(batch_norm(bb, conv, 6)), 6)

    assert names(prepared(body, **X)) == ["nn.conv2d", "add"]
