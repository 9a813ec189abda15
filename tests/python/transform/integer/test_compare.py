"""Thresholds on sums and codes."""

import numpy as np
import pytest
from tvm import relax

from plain_tvm import build, run_one
from realized import Grid, normal, realize, weight_grid
from tvm_quant.ir import bindings
from tvm_quant.op import is_threshold, threshold

OP = relax.op
DATA = Grid(0.05, 20)
X = normal(8, 6)
W = normal(6, 4, seed=1)


def counted(bb, value, steps):
    return bb.emit(threshold(value, steps, low=-1, dtype="int8"), "counted")


def sums(bb, x):
    grid = weight_grid(W, 1)
    return bb.emit(OP.matmul(DATA.quantize(bb, x), grid.quantize(bb, relax.const(W))), "sums")


def compared_type(mod):
    (data,) = [b.value.args[0] for b in bindings(mod["main"]) if is_threshold(b.value)]
    return str(data.ty.dtype)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("channels", [False, True])
def test_sums_are_compared_as_integers(relu, channels):
    steps = np.sort(normal(1, 4, 5, seed=2), axis=-1) if channels else np.sort(normal(5, seed=3))

    def body(bb, x):
        value = bb.emit(OP.multiply(sums(bb, x), relax.const(np.float32([1, -2, 0.5, 3]))))
        value = bb.emit(OP.add(value, relax.const(np.float32([0.1, 0, -1, 2]))))
        return counted(bb, bb.emit(OP.nn.relu(value)) if relu else value, steps)

    mod = realize(body, x=X.shape)
    assert compared_type(mod) == "int32"
    np.testing.assert_array_equal(run_one(mod, X), run_one(build(body, x=X.shape), X))


def test_codes_are_looked_up():
    steps = np.float32([-0.3, 0.1, 0.12, 2])

    def body(bb, x):
        return counted(bb, DATA.quantize(bb, x), steps)

    mod = realize(body, x=X.shape)
    assert not [b for b in bindings(mod["main"]) if is_threshold(b.value)]
    np.testing.assert_array_equal(run_one(mod, X), run_one(build(body, x=X.shape), X))


def test_float_data_is_compared_as_it_is():
    steps = np.float32([-0.3, 0.1])
    mod = realize(lambda bb, x: counted(bb, x, steps), x=X.shape)
    assert compared_type(mod) == "float32"
