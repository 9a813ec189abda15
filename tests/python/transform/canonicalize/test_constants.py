import numpy as np
import pytest
from tvm import relax

from prepared import assert_leaves, assert_prepares, const, nn, prepared
from tvm_quant.ir import bindings, constant_value

c, op = relax.const, relax.op
A, B = const(2, 3, seed=1), const(2, 3, seed=2)
X = {"x": (2, 3)}


@pytest.mark.parametrize(
    ("folded", "value"),
    [
        (lambda: op.add(c(A), c(B)), A + B),
        (lambda: op.divide(c(A), c(B)), A / B),
        (lambda: op.permute_dims(c(A.T), [1, 0]), A),
        (lambda: op.reshape(c(A.reshape(6)), (2, 3)), A),
        (lambda: op.concat([c(A[:1]), c(A[1:])], 0), A),
        (lambda: op.strided_slice(c(const(4, 3)), [0], [1], [4], [2]), const(4, 3)[1:4:2]),
        (
            lambda: op.take(c(const(4, 3)), c([3, -4]), 0, mode="wrap"),
            const(4, 3)[[3, 0]],
        ),
        (lambda: op.where(op.greater(c(A), c(B)), c(A), c(B)), np.maximum(A, B)),
        (lambda: op.clip(c(A), 0.5, 1.0), np.clip(A, 0.5, 1.0)),
        (lambda: op.astype(c(np.ones((2, 3), "int64")), "float32"), np.ones((2, 3))),
        (lambda: op.broadcast_to(c(A[:1]), (2, 3)), A[[0, 0]]),
        (lambda: op.full((2, 3), c(np.float32(2))), np.full((2, 3), 2)),
        (lambda: op.negative(op.sqrt(c(A * A))), -A),
        (lambda: op.tile(c(A[:1]), [2, 1]), A[[0, 0]]),
        (lambda: op.mean(c(const(2, 3, 4)), [2]), const(2, 3, 4).mean(2)),
    ],
)
def test_calls_of_constants_are_folded(folded, value):
    mod = prepared(lambda bb, x: op.maximum(x, bb.emit(folded())), **X)
    (binding,) = bindings(mod["main"])
    found = constant_value(binding.value.args[1])
    np.testing.assert_array_equal(np.broadcast_to(found, (2, 3)), value)


def test_a_constant_bound_to_a_variable_is_seen():
    def before(bb, x):
        return relax.op.matmul(x, bb.emit(op.permute_dims(bb.emit(c(A)), [1, 0])))

    assert_prepares(before, lambda bb, x: relax.op.matmul(x, c(A.T)), **X)


def test_the_shape_of_a_tensor_of_known_shape_is_folded():
    def before(bb, x):
        shape = bb.emit(op.shape_to_tensor(bb.emit(op.shape_of(x))))
        return op.multiply(x, bb.emit(op.astype(shape, "float32")))

    assert_prepares(before, lambda bb, x: op.multiply(x, c(np.float32([3, 2]))), x=(3, 2))


def test_a_result_may_be_constant():
    mod = prepared(lambda bb, x: (nn.relu(x), op.add(c(A), c(B))), **X)
    assert len(bindings(mod["main"])) == 2


def test_a_constant_does_not_grow_beyond_measure():
    def body(bb, x):
        return op.add(x, bb.emit(op.broadcast_to(c(np.float32(1)), (1 << 12, 1 << 11))))

    text = prepared(body, x=(1, 1)).script()
    assert "broadcast_to" in text


def test_integers_are_divided_at_run_time():
    def body(bb, x):
        return op.add(x, bb.emit(op.divide(c([7], "int64"), c([2], "int64"))))

    assert_leaves(body, x=("int64", 1))
