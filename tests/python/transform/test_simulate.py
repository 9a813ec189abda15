import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as S

from calibrated import calibrated
from numpy_network import evaluate_one
from plain_tvm import build, run_one
from realized import normal
from tvm_quant.op import Kind, QuantSpec, simulated_quantize, simulated_quantize_numpy
from tvm_quant.transform import Annotate, Simulate

R, NN = relax.op, relax.op.nn
U8 = QuantSpec(signed=False, symmetric=False)
GRIDS = [U8, QuantSpec(narrow=True), QuantSpec(bits=4), QuantSpec(bits=16, symmetric=False)]


def test_simulate_spells_out_quantizers_in_float():
    scale, zero, three = (relax.const(np.float32(x)) for x in (0.5, 3, 3))

    @I.ir_module
    class Before:
        @S.function
        def main(x: S.Tensor((2, 3), "float32")) -> S.Tensor((2, 3), "float32"):
            with S.dataflow():
                q = simulated_quantize(x, 0.5, 3, spec=U8, kind=Kind.INPUT)
                y = S.nn.relu(q)
                S.output(y)
            return y

    @I.ir_module
    class After:
        @S.function
        def main(x: S.Tensor((2, 3), "float32")) -> S.Tensor((2, 3), "float32"):
            with S.dataflow():
                steps = S.divide(x, scale)
                whole = S.round(steps)
                codes = S.add(whole, zero)
                cut = S.clip(codes, 0.0, 255.0)
                centred = S.subtract(cut, three)
                q = S.multiply(centred, scale)
                y = S.nn.relu(q)
                S.output(y)
            return y

    tvm.ir.assert_structural_equal(Simulate()(Before), After)
    tvm.ir.assert_structural_equal(Simulate()(After), After)


def test_the_result_is_that_of_the_quantizer_to_the_bit():
    """Ties, values beyond the grid, scales that are no power of two, one scale per channel."""
    x = np.concatenate([np.arange(-40, 40) / 8, normal(176, scale=30)]).reshape(4, 64)
    x = x.astype("float32")
    rows = np.float32([[0.25], [0.3], [1.7], [0.01]]), np.int32([[0], [3], [-2], [1]])
    grids = [(np.float32(0.25), np.int32(1), spec) for spec in GRIDS]
    grids += [(*rows, QuantSpec(symmetric=False, axis=0))]

    def body(b, x):
        return tuple(
            b.emit(simulated_quantize(x, scale, zero_point, spec=spec, kind=Kind.INPUT))
            for scale, zero_point, spec in grids
        )

    mod = build(body, x=x.shape)
    stacked = build(lambda b, x: b.emit(R.concat(list(body(b, x)), axis=0)), x=x.shape)
    plain, simulated = run_one(stacked, x), run_one(Simulate()(stacked), x)
    expected = [simulated_quantize_numpy(x, *grid) for grid in grids]
    np.testing.assert_array_equal(simulated, np.concatenate(expected))
    np.testing.assert_array_equal(plain, simulated)
    assert "tvm_quant" not in Simulate()(mod).script(show_meta=False)


@pytest.mark.parametrize("steps", ["annotated", "calibrated"])
def test_no_quantizer_is_left(steps):
    def network(b, x):
        y = b.emit(NN.conv2d(x, relax.const(normal(4, 3, 3, 3))), "conv")
        y = b.emit(R.sigmoid(b.emit(R.clip(y, -1, 6), "clip")), "sigmoid")
        return b.emit(NN.conv2d(y, relax.const(normal(2, 4, 3, 3))), "last")

    x = normal(2, 3, 8, 8)
    mod = build(network, x=x.shape)
    quantized = Annotate()(mod) if steps == "annotated" else calibrated(mod, x)[0]
    simulated = Simulate()(quantized)
    assert "simulated_quantize" not in simulated.script(show_meta=False)
    assert simulated["main"].attrs.keys() == quantized["main"].attrs.keys()
    wanted = evaluate_one(mod if steps == "annotated" else quantized, x)
    np.testing.assert_allclose(run_one(simulated, x), wanted, atol=1e-4)
