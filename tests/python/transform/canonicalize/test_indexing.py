import numpy as np
import pytest
from tvm import relax, tirx

from plain_tvm import build, run_one
from prepared import assert_leaves, assert_prepares
from tvm_quant.transform import Prepare

c, op = relax.const, relax.op
X = {"x": (2, 5, 3)}


@pytest.mark.parametrize("position", [3, -2])
def test_one_position_is_a_slice_without_its_axis(position):
    assert_prepares(
        lambda bb, x: op.take(x, c(np.int64(position)), 1, mode="wrap"),
        lambda bb, x: op.squeeze(bb.emit(op.strided_slice(x, [1], [3], [4])), [1]),
        **X,
    )


@pytest.mark.parametrize(
    ("positions", "begin", "end", "step"),
    [([0, 2, 4], 0, 5, 2), ([-1], 4, 5, 1), ([1, 2], 1, 3, 1)],
)
def test_evenly_spaced_positions_are_a_slice(positions, begin, end, step):
    assert_prepares(
        lambda bb, x: op.take(x, c(np.array(positions)), 1, mode="wrap"),
        lambda bb, x: op.strided_slice(x, [1], [begin], [end], [step]),
        **X,
    )


@pytest.mark.parametrize("positions", [[2, 0], [0, 1, 3], [1, 1], [[0, 1]]])
def test_other_positions_stay(positions):
    assert_leaves(lambda bb, x: op.take(x, c(np.array(positions)), 1, mode="wrap"), **X)


def test_positions_from_the_end_of_an_open_axis_stay():
    shape = (2, tirx.Var("n", "int64"), 3)
    assert_leaves(lambda bb, x: op.take(x, c(np.int64(-1)), 1, mode="wrap"), x=shape)


def test_positions_are_never_read_outside_the_tensor():
    table = c(np.ones((7, 3), "float32"))
    mod = Prepare()(build(lambda bb, x: op.take(table, x, 0, mode="fast"), x=("int64", 2)))
    wrong = np.array([8, -1])
    np.testing.assert_array_equal(run_one(mod, wrong), np.ones((2, 3)))


def test_a_lookup_in_a_constant_table_stays():
    table = c(np.ones((7, 3), "float32"))
    assert_leaves(lambda bb, x: op.take(table, x, 0, mode="wrap"), x=("int64", 2, 5))
