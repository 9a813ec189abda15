import numpy as np
import pytest
import tvm
from tvm import relax

from plain_tvm import build, run_one
from tvm_quant.backend.cpu.fold import FoldCheapConstants
from tvm_quant.ir import constant
from tvm_quant.op import Kind, QuantSpec, simulated_quantize, simulated_quantize_numpy

R = relax.op
A = np.random.default_rng(0).normal(size=(2, 3)).astype("float32")


@pytest.mark.parametrize(
    "call",
    [
        R.reshape(constant(A), (3, 2)),
        R.expand_dims(constant(A), [0]),
        R.squeeze(constant(A[None]), [0]),
        R.permute_dims(constant(A)),
        R.permute_dims(constant(A[None]), [2, 0, 1]),
        R.broadcast_to(constant(A), (4, 2, 3)),
        R.add(constant(A), constant(A[0])),
        R.subtract(constant(A), constant(A[0])),
        R.multiply(constant(A), constant(A[0])),
        R.divide(constant(A), constant(A[0])),
        R.negative(constant(A)),
        R.round(constant(A * 5)),
        R.sqrt(constant(A * A)),
        R.clip(constant(A), -0.5, 0.25),
    ],
    ids=lambda call: str(call.op.name),
)
def test_a_call_on_constants_becomes_its_value(call):
    mod = build(lambda b, x: R.maximum(x, b.emit(call)), x=(1,))
    folded = FoldCheapConstants()(mod)
    value = run_one(build(lambda _b, _x: call, x=(1,)), np.zeros(1, "float32"))
    expected = build(lambda _b, x: R.maximum(x, constant(value)), x=(1,))
    tvm.ir.assert_structural_equal(folded, expected)


def test_chains_are_folded_whole():
    def chain(b, x):
        scale = b.emit(R.sqrt(b.emit(R.add(constant(A * A), constant(np.float32(1))))))
        return R.multiply(x, b.emit(R.reshape(scale, (6,))))

    value = np.sqrt(A * A + np.float32(1)).reshape(6)
    expected = build(lambda _b, x: R.multiply(x, constant(value)), x=(6,))
    tvm.ir.assert_structural_equal(FoldCheapConstants()(build(chain, x=(6,))), expected)


def test_quantizers_of_weights_become_rounded_weights():
    spec = QuantSpec()
    call = simulated_quantize(constant(A), 0.1, 0, spec=spec, kind=Kind.WEIGHT)
    folded = FoldCheapConstants()(build(lambda b, x: R.matmul(x, b.emit(call)), x=(1, 2)))
    value = simulated_quantize_numpy(A, 0.1, 0, spec)
    expected = build(lambda _b, x: R.matmul(x, constant(value)), x=(1, 2))
    tvm.ir.assert_structural_equal(folded, expected)


def test_integer_arithmetic_is_left_to_tvm():
    seven = constant(np.array([7], "int32"))
    mod = build(lambda b, x: R.add(x, b.emit(R.divide(seven, seven))), x=("int32", 1))
    tvm.ir.assert_structural_equal(FoldCheapConstants()(mod), mod)
