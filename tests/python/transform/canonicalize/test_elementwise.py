import numpy as np
import pytest
from tvm import relax

from prepared import assert_leaves, assert_prepares, const, nn, prepared

c = relax.const
X = {"x": (2, 3, 4, 4)}
C = const(1, 3, 1, 1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (lambda x: relax.op.subtract(x, c(C)), lambda x: relax.op.add(x, c(-C))),
        (lambda x: relax.op.divide(x, c(C)), lambda x: relax.op.multiply(x, c(1 / C))),
        (lambda x: relax.op.add(c(C), x), lambda x: relax.op.add(x, c(C))),
        (lambda x: relax.op.multiply(c(C), x), lambda x: relax.op.multiply(x, c(C))),
    ],
)
def test_a_constant_stands_on_the_right_of_a_sum_or_product(before, after):
    assert_prepares(lambda bb, x: before(x), lambda bb, x: after(x), **X)


def test_a_constant_minus_a_tensor_stays():
    assert_leaves(lambda bb, x: relax.op.subtract(c(C), x), **X)


def test_a_division_by_zero_stays():
    assert "R.divide" in _script(lambda bb, x: relax.op.divide(x, c(np.float32([1, 0, 2, 4]))))


def test_integers_are_left_alone():
    assert_leaves(lambda bb, x: relax.op.subtract(x, c(3, "int64")), x=("int64", 4))


@pytest.mark.parametrize("operator", [relax.op.add, relax.op.multiply])
def test_two_constants_in_a_row_become_one(operator):
    function = {relax.op.add: np.add, relax.op.multiply: np.multiply}[operator]

    def before(bb, x):
        return operator(bb.emit(operator(x, c(C))), c(np.float32(4)))

    assert_prepares(before, lambda bb, x: operator(x, c(function(C, np.float32(4)))), **X)


def test_constants_stay_apart_where_someone_reads_between_them():
    def body(bb, x):
        first = bb.emit(relax.op.add(x, c(C)))
        return relax.op.add(first, c(np.float32(4))), nn.relu(first)

    assert_leaves(body, **X)


@pytest.mark.parametrize("shape", [(1,), (1, 1), (1, 1, 1, 1), (3, 1, 1), (3, 4, 4), (4, 1)])
def test_a_constant_of_one_value_has_rank_0(shape):
    value = np.full(shape, 2, np.float32)
    assert_prepares(
        lambda bb, x: relax.op.multiply(x, c(value)),
        lambda bb, x: relax.op.multiply(x, c(np.float32(2))),
        **X,
    )


@pytest.mark.parametrize("shape", [(3, 1, 1), (1, 3, 1, 1), (3, 4, 4), (1, 3, 4, 1)])
def test_a_constant_per_channel_has_the_rank_of_the_tensor(shape):
    value = np.broadcast_to(C.reshape(3, 1, 1), shape[-3:]).reshape(shape)
    assert_prepares(
        lambda bb, x: relax.op.multiply(x, c(np.array(value))),
        lambda bb, x: relax.op.multiply(x, c(C)),
        **X,
    )


def test_a_vector_along_the_last_axis_stays_a_vector():
    assert_leaves(lambda bb, x: relax.op.multiply(x, c(const(4))), **X)


def test_a_constant_that_enlarges_the_tensor_keeps_its_shape():
    assert_leaves(lambda bb, x: relax.op.add(x, c(const(2, 1, 1, 1))), x=(1, 3, 4, 4))


def _script(body):
    return prepared(lambda bb, x: bb.emit(nn.relu(bb.emit(body(bb, x)))), **X).script()
