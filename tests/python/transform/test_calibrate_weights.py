import dataclasses

import numpy as np
import pytest
import tvm
from numpy.testing import assert_allclose
from tvm import relax
from tvm.relax import op as R
from tvm.script import ir as I
from tvm.script import relax as S

from plain_tvm import build
from tvm_quant.config import LayerConfig, QuantizeConfig
from tvm_quant.errors import CalibrationError, ConfigError
from tvm_quant.ir import with_node_names
from tvm_quant.op import Kind, QuantSpec, is_calibrated, simulated_quantize
from tvm_quant.op.simulated_quantize import scale_of
from tvm_quant.transform import Annotate, CalibrateWeights
from tvm_quant.transform.quantizers import quantizers

RNG = np.random.default_rng(0)
KERNEL = RNG.normal(size=(4, 3, 3, 3)).astype("float32")
HEAD = RNG.normal(size=(4, 5)).astype("float32")
S8_ROWS = QuantSpec(narrow=True, axis=0)
W = relax.const(KERNEL)
SCALE = np.abs(KERNEL).max(axis=(1, 2, 3), keepdims=True) / np.float32(127)


def network():
    def body(b, x):
        y = b.emit(R.nn.conv2d(x, relax.const(KERNEL)), "conv")
        y = b.emit(R.mean(b.emit(R.nn.relu(y)), [2, 3]), "mean")
        return b.emit(R.matmul(y, relax.const(HEAD)), "dense")

    mod = build(body, x=(1, 3, 6, 6))
    mod["main"] = with_node_names(mod["main"], {"conv": "layer1/Conv", "dense": "head/Gemm"})
    return mod


def weight_scales(config, mod=None):
    """{reader: (scale, zero point)} of the weights."""
    annotated = Annotate(config)(mod or network())
    func = CalibrateWeights(config)(annotated)["main"]
    return {
        quantizer.readers[0][0]: scale_of(quantizer.call)
        for quantizer in quantizers(func)
        if quantizer.kind is Kind.WEIGHT
    }


def test_calibrate_weights_fills_in_the_scales_of_weights_alone():
    @I.ir_module
    class Before:
        @S.function
        def main(x: S.Tensor((1, 3, 8, 8), "float32")) -> S.Tensor((1, 4, 6, 6), "float32"):
            with S.dataflow():
                x_q = simulated_quantize(x, spec=QuantSpec(), kind=Kind.INPUT)
                w_q = simulated_quantize(W, spec=S8_ROWS, kind=Kind.WEIGHT)
                y = S.nn.conv2d(x_q, w_q)
                S.output(y)
            return y

    @I.ir_module
    class After:
        @S.function
        def main(x: S.Tensor((1, 3, 8, 8), "float32")) -> S.Tensor((1, 4, 6, 6), "float32"):
            with S.dataflow():
                x_q = simulated_quantize(x, spec=QuantSpec(), kind=Kind.INPUT)
                w_q = simulated_quantize(W, SCALE, spec=S8_ROWS, kind=Kind.WEIGHT)
                y = S.nn.conv2d(x_q, w_q)
                S.output(y)
            return y

    tvm.ir.assert_structural_equal(CalibrateWeights()(Before), After)
    tvm.ir.assert_structural_equal(CalibrateWeights()(After), After)  # idempotent


def test_scales_that_are_there_stay():
    def body(b, x):
        w = b.emit(
            simulated_quantize(relax.const(KERNEL), 0.5, spec=QuantSpec(), kind=Kind.WEIGHT), "w_q"
        )
        return b.emit(R.nn.conv2d(x, w))

    mod = build(body, x=(1, 3, 6, 6))
    tvm.ir.assert_structural_equal(CalibrateWeights()(mod), mod)


def test_per_tensor_weights_have_one_scale():
    scales = weight_scales(QuantizeConfig(per_channel=False))
    assert_allclose(scales["layer1/Conv"][0], np.abs(KERNEL).max() / 127, rtol=1e-6)
    assert scales["head/Gemm"][0].shape == ()


def test_matmul_weights_have_a_scale_per_column():
    scale, _ = weight_scales(QuantizeConfig())["head/Gemm"]
    assert_allclose(scale, np.abs(HEAD).max(axis=0, keepdims=True) / 127, rtol=1e-6)


@pytest.mark.parametrize("pattern", ["layer1/Conv", "layer1/*", "relax.nn.conv2d"])
def test_an_override_selects_another_estimator_for_one_layer(pattern):
    overrides = {pattern: LayerConfig(weight_estimator="power2")}
    scales = weight_scales(QuantizeConfig(overrides=overrides))
    assert (np.frexp(scales["layer1/Conv"][0])[0] == 0.5).all()
    assert not (np.frexp(scales["head/Gemm"][0])[0] == 0.5).any()


def test_options_reach_the_estimator():
    options = {"percentile": {"percentile": 90.0}}
    config = QuantizeConfig(weight_estimator="percentile", estimator_options=options)
    expected = np.percentile(np.abs(KERNEL).reshape(4, -1), 90, axis=1) / 127
    assert_allclose(weight_scales(config)["layer1/Conv"][0].ravel(), expected, rtol=1e-5)


@pytest.mark.parametrize("config", [{"power_of_two_scales": True}, {"hardware": "vta"}])
def test_hardware_that_shifts_gets_powers_of_two(config):
    for scale, _ in weight_scales(QuantizeConfig(**config)).values():
        assert (np.frexp(scale)[0] == 0.5).all()


def test_an_unknown_estimator_lists_the_known_ones():
    with pytest.raises(ConfigError, match=r"'maxx' is no estimator of weight .*'max', 'power2'"):
        weight_scales(QuantizeConfig(weight_estimator="maxx"))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_weight_that_is_not_finite_names_its_layer(value):
    weight = KERNEL.copy()
    weight[1, 2, 0, 0] = value

    def body(b, x):
        return b.emit(R.nn.conv2d(x, relax.const(weight)), "conv")

    expected = r"The weight of 'conv', shape \(4, 3, 3, 3\), holds NaN or Inf"
    with pytest.raises(CalibrationError, match=expected):
        weight_scales(QuantizeConfig(), build(body, x=(1, 3, 6, 6)))


def test_a_weight_that_is_no_constant_is_refused():
    spec = dataclasses.replace(S8_ROWS, axis=None)

    def body(b, x, w):
        w = b.emit(simulated_quantize(w, spec=spec, kind=Kind.WEIGHT), "w_q")
        return b.emit(R.nn.conv2d(x, w), "conv")

    mod = build(body, x=(1, 3, 6, 6), w=(4, 3, 3, 3))
    with pytest.raises(CalibrationError, match="Weight 'w_q' of 'conv' is computed at run time"):
        CalibrateWeights()(mod)


def test_both_operands_of_a_convolution_on_zeros_get_sound_scales():
    def body(b, x):
        return b.emit(R.nn.conv2d(x, relax.const(np.zeros_like(KERNEL))), "conv")

    ((scale, zero_point),) = weight_scales(QuantizeConfig(), build(body, x=(1, 3, 6, 6))).values()
    assert (scale > 0).all() and not zero_point.any()


def test_every_weight_quantizer_is_calibrated_afterwards():
    func = CalibrateWeights()(Annotate()(network()))["main"]
    assert all(is_calibrated(q.call) == (q.kind is Kind.WEIGHT) for q in quantizers(func))
