"""CalibrateWeights: give the quantizers of constants their scales.

Before    qw = simulated_quantize(w, Kind.WEIGHT)
After     qw = simulated_quantize(w, scale, zero_point, Kind.WEIGHT)

Needs Annotate. Quantizers that have a scale already keep it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import IRModule

from tvm_quant.config import QuantizeConfig
from tvm_quant.errors import CalibrationError
from tvm_quant.estimator import (
    AbsMax,
    MeanSquaredError,
    WeightEstimator,
    power_of_two_weight_scale,
    weight_estimator,
)
from tvm_quant.hardware import hardware_row
from tvm_quant.ir import constant_value
from tvm_quant.ir.signature import main_function
from tvm_quant.op import Kind, QuantSpec, is_calibrated, spec_of
from tvm_quant.placement import layer_config
from tvm_quant.transform.quantizers import Quantizer, quantizers, set_scales

Array = npt.NDArray[Any]

#: Up to so many bits, covering the largest weight costs the others too much.
FEW_BITS = 4


@tvm.transform.module_pass(opt_level=0, name="CalibrateWeights")
class CalibrateWeights:
    """Fill in scale and zero point of every quantizer of kind WEIGHT.

    Args:
        config: names the estimator, its options, and overrides by layer.
    """

    def __init__(self, config: QuantizeConfig | None = None):
        self.config = config or QuantizeConfig()

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """Run the pass."""
        weights = [
            quantizer
            for quantizer in quantizers(main_function(mod))
            if quantizer.kind is Kind.WEIGHT and not is_calibrated(quantizer.call)
        ]
        return set_scales(mod, {weight.name: self._scale(weight) for weight in weights})

    def _scale(self, weight: Quantizer) -> tuple[Array, Array]:
        spec = spec_of(weight.call)
        estimator = estimator_of(self.config, spec.bits, *weight.names)
        value = _finite_constant(weight)
        scale, zero_point = estimator.weight_scale(value, spec)
        if power_of_two_scales(self.config):
            scale = power_of_two_weight_scale(value, scale, zero_point, spec)
        return scale, zero_point


def estimator_of(config: QuantizeConfig, bits: int, *names: str) -> WeightEstimator:
    """The estimator of the weights, of so many bits, of a layer of these names."""
    name = _named(config, *names) or (MeanSquaredError.name if bits <= FEW_BITS else AbsMax.name)
    return weight_estimator(name, config.estimator_options)


def chooses_steps(config: QuantizeConfig, spec: QuantSpec, *names: str) -> bool:
    """Whether RoundWeights chooses the scale of a weight together with its codes."""
    return spec.bits <= FEW_BITS and _named(config, *names) is None


def _named(config: QuantizeConfig, *names: str) -> str | None:
    return layer_config(config, *names).weight_estimator or config.weight_estimator


def power_of_two_scales(config: QuantizeConfig) -> bool:
    """Whether scales have to be powers of two: the user's choice, else the hardware's."""
    if config.power_of_two_scales is not None:
        return config.power_of_two_scales
    return hardware_row(config.hardware).power_of_two_scales


def _finite_constant(weight: Quantizer) -> Array:
    value = constant_value(weight.call.args[0])
    if value is None:
        raise CalibrationError(
            f"Weight '{weight.name}' of {weight.reader} is computed at run time, so it has no "
            "fixed scale. Pass its value in `params`, or leave the layer in float with `skip`."
        )
    if not np.isfinite(value).all():
        raise CalibrationError(
            f"The weight of {weight.reader}, shape {value.shape}, holds NaN or Inf. Check the "
            "model file, or leave the layer in float with `skip`."
        )
    return value
