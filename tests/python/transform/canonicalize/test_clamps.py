import math

import numpy as np
import pytest
from tvm import relax

from prepared import assert_leaves, assert_prepares, nn, prepared

c = relax.const
X = {"x": (2, 3)}


def number(value):
    return c(np.float32(value))


@pytest.mark.parametrize(
    ("before", "low", "high"),
    [
        (lambda bb, x: relax.op.minimum(bb.emit(nn.relu(x)), number(6)), 0, 6),
        (lambda bb, x: relax.op.maximum(number(1), bb.emit(relax.op.minimum(x, number(2)))), 1, 2),
        (lambda bb, x: relax.op.clip(bb.emit(relax.op.clip(x, -1, 5)), 0, 9), 0, 5),
        (lambda bb, x: relax.op.clip(bb.emit(relax.op.clip(x, 3, 5)), 0, 1), 1, 1),
        (lambda bb, x: nn.relu6(x), 0, 6),
        (lambda bb, x: relax.op.minimum(x, c(np.float32([[6]]))), -math.inf, 6),
        (lambda bb, x: relax.op.clip(bb.emit(relax.op.clip(x, 0, math.inf)), -math.inf, 6), 0, 6),
    ],
)
def test_chains_of_clamps_become_one_clip(before, low, high):
    (binding,) = prepared(before, **X)["main"].body.blocks[0].bindings
    assert str(binding.value.op.name) == "relax.clip"
    assert [float(bound.value) for bound in binding.value.args[1:]] == [low, high]


@pytest.mark.parametrize(
    "before",
    [
        lambda bb, x: relax.op.maximum(x, number(0)),
        lambda bb, x: relax.op.clip(x, 0, math.inf),
        lambda bb, x: nn.relu(bb.emit(nn.relu(x))),
    ],
)
def test_what_is_the_larger_of_x_and_0_is_relu(before):
    assert_prepares(before, lambda bb, x: nn.relu(x), **X)


def test_a_clamp_that_someone_reads_is_not_merged_into_the_next():
    def body(bb, x):
        first = bb.emit(nn.relu(x))
        return relax.op.clip(first, 0.0, 6.0), relax.op.tanh(first)

    assert_leaves(body, **X)


def test_an_open_clamp_vanishes():
    assert_prepares(
        lambda bb, x: relax.op.tanh(bb.emit(relax.op.clip(x, -math.inf, math.inf))),
        lambda bb, x: relax.op.tanh(x),
        **X,
    )


def test_a_maximum_with_a_tensor_or_nan_stays():
    assert_leaves(lambda bb, x: relax.op.maximum(x, c(np.float32([1, 2, 3]))), **X)


def test_integers_are_left_alone():
    assert_leaves(lambda bb, x: relax.op.maximum(x, c(0, "int64")), x=("int64", 4))
