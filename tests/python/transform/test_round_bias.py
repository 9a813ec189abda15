import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as S

from calibrated import calibrated, value_of
from numpy_network import evaluate_one
from plain_tvm import build, run_one
from realized import normal
from tvm_quant.ir import constant_value
from tvm_quant.op import Kind, QuantSpec, scale_of, simulated_quantize
from tvm_quant.transform import Realize, RoundBias

R, NN = relax.op, relax.op.nn
S8 = QuantSpec(narrow=True)
PER_CHANNEL = QuantSpec(narrow=True, axis=0)
X = normal(4, 4, 6, 6)


def const(array):
    return relax.const(np.float32(array))


W = const(np.ones((2, 2, 1, 1)))
W_SCALE = np.float32([0.5, 0.25]).reshape(2, 1, 1, 1)
BIAS = const(np.reshape([0.3, -0.3], (1, 2, 1, 1)))
ROUNDED = const(np.reshape([0.25, -0.25], (1, 2, 1, 1)))  # steps of 0.25 and of 0.125


def test_a_bias_becomes_whole_steps_of_its_accumulator():
    @I.ir_module
    class Before:
        @S.function
        def main(x: S.Tensor((1, 2, 4, 4), "float32")) -> S.Tensor((1, 2, 4, 4), "float32"):
            with S.dataflow():
                x_q = simulated_quantize(x, 0.5, spec=S8, kind=Kind.INPUT)
                w_q = simulated_quantize(W, W_SCALE, spec=PER_CHANNEL, kind=Kind.WEIGHT)
                y = S.nn.conv2d(x_q, w_q)
                z = S.add(y, BIAS)
                S.output(z)
            return z

    @I.ir_module
    class After:
        @S.function
        def main(x: S.Tensor((1, 2, 4, 4), "float32")) -> S.Tensor((1, 2, 4, 4), "float32"):
            with S.dataflow():
                x_q = simulated_quantize(x, 0.5, spec=S8, kind=Kind.INPUT)
                w_q = simulated_quantize(W, W_SCALE, spec=PER_CHANNEL, kind=Kind.WEIGHT)
                y = S.nn.conv2d(x_q, w_q)
                z = S.add(y, ROUNDED)
                S.output(z)
            return z

    rounded = RoundBias()(Before)
    tvm.ir.assert_structural_equal(rounded, After)
    tvm.ir.assert_structural_equal(RoundBias()(rounded), After)


@pytest.mark.parametrize(
    "layer",
    [
        lambda x: NN.conv2d(x, const(normal(8, 4, 3, 3, seed=1))),
        lambda x: NN.conv2d(x, const(normal(8, 2, 3, 3, seed=1)), groups=2),
        lambda x: NN.conv2d_transpose(x, const(normal(4, 4, 3, 3, seed=1)), groups=2),
    ],
    ids=["plain", "grouped", "transposed"],
)
def test_simulation_adds_what_the_integers_add(layer):
    def body(b, x):
        y = b.emit(layer(x), "conv")
        bias = normal(1, 8, 1, 1, seed=2)
        return b.emit(R.add(y, const(bias)), "biased")

    mod, _ = calibrated(build(body, x0=X.shape), X)
    rounded = RoundBias()(mod)
    integers = run_one(Realize()(mod), X)
    np.testing.assert_array_equal(run_one(Realize()(rounded), X), integers)
    before, after = (np.abs(evaluate_one(m, X) - integers).max() for m in (mod, rounded))
    assert after < 1e-5 < before


def test_a_matmul_counts_its_columns():
    def body(b, x):
        y = b.emit(R.matmul(x, const(normal(6, 3, seed=1))), "product")
        return b.emit(R.add(y, const(normal(3, seed=2))), "biased")

    mod, _ = calibrated(build(body, x0=(5, 6)), normal(5, 6))
    rounded = RoundBias()(mod)
    product = value_of(rounded, "product")
    (step, _), (t, _) = (scale_of(value_of(rounded, arg.name)) for arg in product.args)
    bias = constant_value(value_of(rounded, "biased").args[1]).reshape(-1)
    scale = step.astype("float64") * t.reshape(-1)
    np.testing.assert_allclose(bias, np.round(normal(3, seed=2) / scale) * scale, rtol=1e-6)


@pytest.mark.parametrize(
    "body",
    [
        lambda b, x: R.add(b.emit(NN.conv2d(x, W)), BIAS),
        lambda b, x: R.add(
            b.emit(NN.conv2d(simulated_quantize(x, 0.5, spec=S8, kind=Kind.INPUT), W)), BIAS
        ),
        lambda b, x: R.add(simulated_quantize(x, 0.5, spec=S8, kind=Kind.INPUT), BIAS),
    ],
    ids=["float", "float weight", "no contraction"],
)
def test_what_is_not_summed_in_integers_is_left(body):
    mod = build(lambda b, x: b.emit(body(b, x)), x0=(1, 2, 4, 4))
    tvm.ir.assert_structural_equal(RoundBias()(mod), mod)


def test_a_constant_for_each_pixel_is_left():
    def body(b, x):
        y = b.emit(NN.conv2d(x, const(normal(8, 4, 1, 1, seed=1))), "conv")
        return b.emit(R.add(y, const(normal(1, 8, 6, 6, seed=2))), "biased")

    mod, _ = calibrated(build(body, x0=X.shape), X)
    tvm.ir.assert_structural_equal(RoundBias()(mod), mod)
