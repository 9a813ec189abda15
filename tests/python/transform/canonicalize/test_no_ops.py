import numpy as np
import pytest
from tvm import relax, tirx

from prepared import assert_leaves, assert_prepares, nn, prepared

c = relax.const
X = {"x": (2, 3, 4)}
op = relax.op


@pytest.mark.parametrize(
    "no_op",
    [
        lambda x: op.reshape(x, (2, 3, 4)),
        lambda x: op.permute_dims(x, [0, 1, 2]),
        lambda x: op.astype(x, "float32"),
        lambda x: op.add(x, c(np.float32(0))),
        lambda x: op.multiply(c(np.float32(1)), x),
        lambda x: op.multiply(x, c(np.ones((3, 1), "float32"))),
        lambda x: op.broadcast_to(x, (2, 3, 4)),
        lambda x: op.strided_slice(x, [1], [0], [3]),
        lambda x: op.concat([x], 1),
        lambda x: nn.pad(x, [0] * 6),
        lambda x: op.squeeze(x, []),
    ],
)
def test_what_changes_nothing_vanishes(no_op):
    assert_prepares(lambda bb, x: nn.relu(bb.emit(no_op(x))), lambda bb, x: nn.relu(x), **X)


def test_the_result_may_be_the_input():
    assert prepared(lambda bb, x: op.reshape(x, (2, 3, 4)), **X)["main"].ret_ty.ndim == 3


def test_a_reshape_of_open_dimensions_to_themselves_vanishes():
    n = tirx.Var("n", "int64")
    assert_prepares(
        lambda bb, x: nn.relu(bb.emit(op.reshape(x, (n, 3)))), lambda bb, x: nn.relu(x), x=(n, 3)
    )


def test_reshapes_in_a_row_become_one():
    def before(bb, x):
        return op.reshape(bb.emit(op.expand_dims(bb.emit(op.reshape(x, (6, 4))), 0)), (3, 8))

    assert_prepares(before, lambda bb, x: op.reshape(x, (3, 8)), **X)


def test_permutations_in_a_row_become_one():
    def before(bb, x):
        return op.permute_dims(bb.emit(op.permute_dims(x, [1, 2, 0])), [2, 1, 0])

    assert_prepares(before, lambda bb, x: op.permute_dims(x, [0, 2, 1]), **X)


def test_a_permutation_and_its_inverse_vanish():
    def before(bb, x):
        return nn.relu(bb.emit(op.permute_dims(bb.emit(op.permute_dims(x, [1, 2, 0])), [2, 0, 1])))

    assert_prepares(before, lambda bb, x: nn.relu(x), **X)


@pytest.mark.parametrize(
    "body",
    [
        lambda bb, x: op.strided_slice(x, [1], [2], [-4], [-1]),
        lambda bb, x: op.add(x, c(np.zeros((5, 1, 1, 1), "float32"))),
        lambda bb, x: op.broadcast_to(x, (2, 2, 3, 4)),
    ],
)
def test_what_reverses_or_enlarges_a_tensor_stays(body):
    assert_leaves(body, **X)
