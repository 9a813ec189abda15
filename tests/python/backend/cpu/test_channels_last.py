"""ChannelsLast on whole modules: what is expected is written in channels-last by hand."""

import numpy as np
import pytest
import tvm
from tvm import relax

from plain_tvm import build
from tvm_quant.backend.cpu.channels_last import ChannelsLast
from tvm_quant.ir import constant

R = relax.op
KERNEL = constant(np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype("float32"))
SQUARE = constant(np.random.default_rng(0).normal(size=(3, 3, 1, 1)).astype("float32"))
BIAS = np.random.default_rng(1).normal(size=(1, 4, 1, 1)).astype("float32")
LAST = {"data_layout": "NHWC", "out_layout": "NHWC"}
TO_LAST, TO_FIRST = [0, 2, 3, 1], [0, 3, 1, 2]


def check(before, after, **inputs):
    """`before` becomes `after` and stays so, both given as functions that emit a body."""
    rewritten = ChannelsLast()(build(before, **inputs))
    tvm.ir.assert_structural_equal(rewritten, build(after, **inputs))
    tvm.ir.assert_structural_equal(ChannelsLast()(rewritten), rewritten)


def test_a_chain_of_calls_is_transposed_at_its_borders_only():
    def before(b, x):
        y = b.emit(R.nn.conv2d(x, KERNEL, padding=1))
        y = b.emit(R.nn.relu(b.emit(R.add(y, constant(BIAS)))))
        return R.nn.max_pool2d(y, (2, 2))

    def after(b, x):
        x = b.emit(R.permute_dims(x, TO_LAST))
        y = b.emit(R.nn.conv2d(x, KERNEL, padding=1, **LAST))
        y = b.emit(R.nn.relu(b.emit(R.add(y, constant(BIAS.reshape(1, 1, 1, 4))))))
        y = b.emit(R.nn.max_pool2d(y, (2, 2), layout="NHWC", out_layout="NHWC"))
        return R.permute_dims(y, TO_FIRST)

    check(before, after, x=(1, 3, 8, 8))


def test_a_residual_input_is_transposed_once_for_all_its_readers():
    def before(b, x):
        y = b.emit(R.nn.conv2d(x, SQUARE))
        return R.add(y, x)

    def after(b, x):
        x = b.emit(R.permute_dims(x, TO_LAST))
        y = b.emit(R.nn.conv2d(x, SQUARE, **LAST))
        return R.permute_dims(b.emit(R.add(y, x)), TO_FIRST)

    check(before, after, x=(1, 3, 8, 8))


def test_calls_that_no_chain_reaches_stay():
    def before(b, x):
        return R.nn.relu(b.emit(R.add(x, constant(BIAS))))

    check(before, before, x=(1, 4, 8, 8))


def test_a_call_that_does_not_know_channels_last_reads_the_old_form():
    def before(b, x):
        y = b.emit(R.nn.conv2d(x, KERNEL))
        return R.cumsum(y, axis=1)

    def after(b, x):
        y = b.emit(R.nn.conv2d(b.emit(R.permute_dims(x, TO_LAST)), KERNEL, **LAST))
        return R.cumsum(b.emit(R.permute_dims(y, TO_FIRST)), axis=1)

    check(before, after, x=(1, 3, 8, 8))


def test_concat_pad_slice_and_softmax_move_their_axes():
    def before(b, x):
        y = b.emit(R.nn.conv2d(x, KERNEL))
        y = b.emit(R.concat([y, y], axis=1))
        y = b.emit(R.nn.pad(y, [0, 0, 0, 0, 1, 2, 3, 4], "constant", 5.0))
        y = b.emit(R.strided_slice(y, [1, 3], [0, 1], [3, 9]))
        return R.nn.softmax(y, axis=1)

    def after(b, x):
        y = b.emit(R.nn.conv2d(b.emit(R.permute_dims(x, TO_LAST)), KERNEL, **LAST))
        y = b.emit(R.concat([y, y], axis=3))
        y = b.emit(R.nn.pad(y, [0, 0, 1, 2, 3, 4, 0, 0], "constant", 5.0))
        y = b.emit(R.strided_slice(y, [3, 2], [0, 1], [3, 9]))
        return R.permute_dims(b.emit(R.nn.softmax(y, axis=3)), TO_FIRST)

    check(before, after, x=(1, 3, 8, 8))


def test_a_mean_over_the_pixels_ends_the_chain_without_a_transpose():
    def before(b, x):
        return R.mean(b.emit(R.nn.conv2d(x, KERNEL)), [2, 3])

    def after(b, x):
        y = b.emit(R.nn.conv2d(b.emit(R.permute_dims(x, TO_LAST)), KERNEL, **LAST))
        return R.mean(y, [1, 2])

    check(before, after, x=(1, 3, 8, 8))


def test_a_reshape_of_single_pixels_ends_the_chain_without_a_transpose():
    def before(b, x):
        y = b.emit(R.mean(b.emit(R.nn.conv2d(x, KERNEL)), [2, 3], keepdims=True))
        return R.reshape(y, (1, 4))

    def after(b, x):
        y = b.emit(R.nn.conv2d(b.emit(R.permute_dims(x, TO_LAST)), KERNEL, **LAST))
        return R.reshape(b.emit(R.mean(y, [1, 2], keepdims=True)), (1, 4))

    check(before, after, x=(1, 3, 8, 8))


def test_a_transpose_of_the_network_is_merged_with_ours():
    def before(b, x):
        return R.permute_dims(b.emit(R.nn.conv2d(x, KERNEL)), [0, 2, 1, 3])

    def after(b, x):
        y = b.emit(R.nn.conv2d(b.emit(R.permute_dims(x, TO_LAST)), KERNEL, **LAST))
        return R.permute_dims(y, [0, 1, 3, 2])

    check(before, after, x=(1, 3, 8, 8))


def test_channels_last_convolutions_stay():
    def before(_b, x):
        return R.nn.conv2d(x, KERNEL, **LAST)

    check(before, before, x=(1, 8, 8, 3))


@pytest.mark.parametrize("rank", [1, 3])
def test_other_ranks_follow_their_own_layouts(rank):
    kernel = constant(np.ones((4, 3) + (3,) * rank, "float32"))
    first, last = {1: ("NCW", "NWC"), 3: ("NCDHW", "NDHWC")}[rank]
    conv = getattr(R.nn, f"conv{rank}d")
    axes = [0, *range(2, rank + 2), 1]

    def before(_b, x):
        return conv(x, kernel, data_layout=first)

    def after(b, x):
        y = conv(b.emit(R.permute_dims(x, axes)), kernel, data_layout=last, out_layout=last)
        return R.permute_dims(b.emit(y), [0, rank + 1, *range(1, rank + 1)])

    check(before, after, x=(1, 3) + (8,) * rank)


def test_fields_of_a_split_stay_in_the_chain():
    def before(b, x):
        y = b.emit(R.nn.conv2d(x, KERNEL))
        left = b.emit(relax.TupleGetItem(b.emit(R.split(y, 2, axis=1)), 0))
        return R.nn.relu(left)

    def after(b, x):
        y = b.emit(R.nn.conv2d(b.emit(R.permute_dims(x, TO_LAST)), KERNEL, **LAST))
        left = b.emit(relax.TupleGetItem(b.emit(R.split(y, 2, axis=3)), 0))
        return R.permute_dims(b.emit(R.nn.relu(left)), TO_FIRST)

    check(before, after, x=(1, 3, 8, 8))


def test_a_table_look_up_follows_its_indices():
    table = constant(np.arange(256, dtype="uint8"))
    kernel = constant(np.ones((4, 3, 1, 1), "int8"))

    def before(b, x):
        return R.take(table, b.emit(R.nn.conv2d(x, kernel, out_dtype="int32")), axis=0)

    def after(b, x):
        x = b.emit(R.permute_dims(x, TO_LAST))
        y = b.emit(R.nn.conv2d(x, kernel, out_dtype="int32", **LAST))
        return R.permute_dims(b.emit(R.take(table, y, axis=0)), TO_FIRST)

    check(before, after, x=("uint8", 1, 3, 8, 8))


def test_a_transposed_convolution_with_an_input_as_weight_stays():
    def before(_b, x, w):
        return R.nn.conv2d_transpose(x, w)

    check(before, before, x=(1, 3, 8, 8), w=(3, 4, 2, 2))


def test_a_pad_in_front_of_a_chain_joins_it():
    def before(b, x):
        y = b.emit(R.nn.pad(x, [0, 0, 0, 0, 1, 2, 3, 4], "constant", 5.0))
        return R.nn.conv2d(y, KERNEL)

    def after(b, x):
        y = b.emit(R.permute_dims(x, TO_LAST))
        y = b.emit(R.nn.pad(y, [0, 0, 1, 2, 3, 4, 0, 0], "constant", 5.0))
        return R.permute_dims(b.emit(R.nn.conv2d(y, KERNEL, **LAST)), TO_FIRST)

    check(before, after, x=(1, 3, 8, 8))
