import numpy as np
from tvm import relax

from plain_tvm import build
from tvm_quant.ir import bindings
from tvm_quant.transform.canonicalize.sharing import share_constants


def operands(*constants):
    """The constants of a chain of sums after sharing."""

    def body(bb, x):
        for constant in constants:
            x = bb.emit(relax.op.add(x, relax.const(constant)))
        return x

    mod = share_constants(build(body, x=(2, 2)))
    return [b.value.args[1] for b in bindings(mod["main"])[:-1]]


def test_equal_constants_become_one():
    first, second = operands(np.ones((2, 2), "float32"), np.ones((2, 2), "float32"))
    assert first.same_as(second)


def test_constants_of_other_values_or_shapes_stay_apart():
    ones = np.ones((2, 2), "float32")
    first, second, third = operands(ones, ones[:1], 2 * ones)
    assert not first.same_as(second) and not first.same_as(third)
