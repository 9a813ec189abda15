import numpy as np
import pytest
from tvm import relax

from calibrated import variable
from plain_tvm import build
from tvm_quant.ir import producers
from tvm_quant.op import Kind, QuantSpec, simulated_quantize
from tvm_quant.transform.code_sources import quantizers_of

R, NN = relax.op, relax.op.nn


@pytest.fixture(scope="module")
def mod():
    def body(b, x, y):
        grid = {"spec": QuantSpec(), "kind": Kind.INPUT}
        x_q = b.emit(simulated_quantize(x, 1.0, **grid), "x_q")
        y_q = b.emit(simulated_quantize(y, 1.0, **grid), "y_q")
        b.emit(NN.max_pool2d(x_q, (2, 2)), "x_pool")
        joined = b.emit(R.concat([x_q, y_q], axis=1), "joined")
        b.emit(R.reshape(joined, (1, -1)), "flat")
        b.emit(R.concat([x_q, y], axis=1), "half_float")
        b.emit(R.add(x_q, y_q), "sum")
        return b.emit(NN.relu(x_q), "relu")

    return build(body, x=(1, 2, 4, 4), y=(1, 2, 4, 4))


@pytest.mark.parametrize(
    ("name", "sources"),
    [
        ("x_q", ["x"]),
        ("x_pool", ["x"]),
        ("joined", ["x", "y"]),
        ("flat", ["x", "y"]),
        ("half_float", []),
        ("sum", []),
        ("relu", []),
    ],
)
def test_codes_are_followed_through_what_moves_them(mod, name, sources):
    found = quantizers_of(variable(mod, name), producers(mod["main"]))
    assert [str(call.args[0].name) for call in found] == sources


def test_inputs_and_constants_hold_no_codes(mod):
    values = producers(mod["main"])
    assert quantizers_of(mod["main"].params[0], values) == []
    assert quantizers_of(relax.const(np.zeros(3, "float32")), values) == []
