import numpy as np
import pytest
from tvm import relax

from plain_tvm import build
from prepared import assert_prepares, const, nn, prepared
from tvm_quant.transform import Prepare

GAMMA, BETA, MEAN = const(4, seed=1), const(4, seed=2), const(4, seed=3)
VAR = np.float32([0.25, 1, 4, 16])
SCALE = GAMMA / np.sqrt(VAR)
SHIFT = BETA - MEAN * SCALE
X = {"x": (2, 4, 5, 5)}
c = relax.const


def batch_norm(x, axis=1, training=False):
    parameters = (c(GAMMA), c(BETA), c(MEAN), c(VAR))
    call = nn.batch_norm(x, *parameters, axis, epsilon=0.0, training=training)
    return relax.TupleGetItem(call, 0)


def test_batch_norm_alone_is_a_product_and_a_sum():
    def after(bb, x):
        scaled = bb.emit(relax.op.multiply(x, c(SCALE.reshape(1, 4, 1, 1))))
        return relax.op.add(scaled, c(SHIFT.reshape(1, 4, 1, 1)))

    assert_prepares(lambda bb, x: batch_norm(x), after, **X)


def test_batch_norm_finds_its_channels_on_any_axis():
    mod = prepared(lambda bb, x: nn.relu(bb.emit(batch_norm(x, axis=3))), x=(2, 5, 5, 4))
    (scale,) = [b.value.args[1] for b in mod["main"].body.blocks[0].bindings[:1]]
    assert tuple(scale.value.shape) == (1, 1, 1, 4)


def test_batch_norm_of_a_matrix_is_scaled_along_its_columns():
    def after(bb, x):
        return relax.op.add(bb.emit(relax.op.multiply(x, c(SCALE[None]))), c(SHIFT[None]))

    assert_prepares(lambda bb, x: batch_norm(x), after, x=(2, 4))


def test_batch_norm_in_training_mode_uses_the_running_statistics_and_says_so(caplog):
    mod = Prepare()(build(lambda bb, x: batch_norm(x, training=True), **X))
    assert "training mode" in caplog.text
    assert "batch_norm" not in mod.script()


def test_batch_norm_with_computed_statistics_stays():
    def body(bb, x, mean):
        call = nn.batch_norm(x, c(GAMMA), c(BETA), mean, c(VAR), 1, training=False)
        return relax.TupleGetItem(bb.emit(call), 0)

    assert "batch_norm" in prepared(body, **X, mean=(4,)).script()


def test_the_statistics_that_batch_norm_returns_are_those_it_was_given():
    def before(bb, x):
        call = bb.emit(nn.batch_norm(x, c(GAMMA), c(BETA), c(MEAN), c(VAR), 1, training=False))
        return relax.op.add(x, relax.op.reshape(relax.TupleGetItem(call, 1), (1, 4, 1, 1)))

    assert_prepares(before, lambda bb, x: relax.op.add(x, c(MEAN.reshape(1, 4, 1, 1))), **X)


def test_dropout_vanishes():
    def before(bb, x):
        return nn.relu(relax.TupleGetItem(bb.emit(nn.dropout(x, 0.5)), 0))

    assert_prepares(before, lambda bb, x: nn.relu(x), **X)


@pytest.mark.parametrize("sections", [2, [1, 3]])
def test_split_becomes_slices(sections):
    mod = prepared(
        lambda bb, x: nn.relu(relax.TupleGetItem(bb.emit(relax.op.split(x, sections, 1)), 1)), **X
    )
    text = mod.script()
    assert "R.split" not in text and "strided_slice" in text


def test_a_concat_of_all_that_a_split_gives_reads_slices():
    def after(bb, x):
        halves = [bb.emit(relax.op.strided_slice(x, [1], [i], [i + 2])) for i in (0, 2)]
        return relax.op.concat(halves, 1)

    assert_prepares(lambda bb, x: relax.op.concat(bb.emit(relax.op.split(x, 2, 1)), 1), after, **X)
