"""FitAccumulators: raise weight scales until everything added in integers fits its type.

A bias b becomes round(b / (s t)) at the accumulator's scale s t, and a residual operand with range
a becomes a / (s t). Where a channel's weights are tiny (t near 0), that leaves int32. The weights
of such a channel contribute next to nothing, so its t is raised until the largest addend takes 30
bits; the bias is never clipped.

Before    t[c] = 1e-11, b[c] = 5, s = 0.02      b / (s t) = 2.5e13
After     t[c] = 2.3e-7                         b / (s t) = 2**30

Some CPUs add pairs of products in 16 bits first (`largest_pair` of the hardware row): there, t is
raised until the codes of no pair of weights exceed that sum.

Needs CalibrateWeights and CalibrateActivations; comes after MatchScales.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import IRModule, relax

from tvm_quant.config import QuantizeConfig
from tvm_quant.estimator import ceil_power_of_two
from tvm_quant.hardware import hardware_row
from tvm_quant.ir import bindings, constant_value, consumers, op_name, tensor_shape
from tvm_quant.ir.signature import main_function
from tvm_quant.op import (
    Role,
    contraction_axes,
    is_calibrated,
    is_simulated,
    role_of,
    scale_of,
    spec_of,
)
from tvm_quant.transform.calibrate_weights import power_of_two_scales
from tvm_quant.transform.channel_vector import Array, to_output_vector, to_weight_shape
from tvm_quant.transform.code_sources import quantizers_of
from tvm_quant.transform.quantizers import set_scales
from tvm_quant.transform.weight_pairs import largest_pairs

#: Bits that the largest addend may take, of 31.
ADDEND_BITS = 30


@tvm.transform.module_pass(opt_level=0, name="FitAccumulators")
class FitAccumulators:
    """Raise the weight scale of each output channel whose sums would leave their integer type.

    Args:
        config: its hardware row, and whether scales are powers of two.
    """

    def __init__(self, config: QuantizeConfig | None = None):
        self.config = config or QuantizeConfig()

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """Run the pass."""
        return set_scales(mod, _Fitter(main_function(mod), self.config).scales())


class _Fitter:
    def __init__(self, func: relax.Function, config: QuantizeConfig):
        self.values = {binding.var: binding.value for binding in bindings(func)}
        self.uses = consumers(func)
        self.powers = power_of_two_scales(config)
        self.largest_pair = hardware_row(config.hardware).largest_pair

    def scales(self) -> dict[str, tuple[Array, Array]]:
        """{weight quantizer: raised scale and zero point}."""
        raised: dict[str, tuple[Array, Array]] = {}
        for var, value in self.values.items():
            if role_of(value) is Role.CONTRACTION:
                self._fit(var, value, raised)
        return raised

    def _fit(
        self, var: relax.Var, call: relax.Call, raised: dict[str, tuple[Array, Array]]
    ) -> None:
        step = self._step(call.args[0])
        weight = self._value(call.args[1])
        if step is None or not is_simulated(weight) or not is_calibrated(weight):
            return
        axes = contraction_axes(call)
        name = str(call.args[1].name)
        scale, zero_point = raised.get(name, scale_of(weight))
        channels = (tensor_shape(var) or ())[axes.output]
        addend = self._addend(var, axes.output, channels or 1)
        smallest = addend / (step * 2.0**ADDEND_BITS)
        known = constant_value(weight.args[0])
        if self.largest_pair is not None and known is not None:
            # Rounding adds half a step to each of the two.
            smallest = np.maximum(smallest, largest_pairs(known, axes) / (self.largest_pair - 1))
        smallest = to_weight_shape(smallest, scale, axes)
        if self.powers:
            smallest = ceil_power_of_two(smallest)
        fitted = np.maximum(scale, smallest).astype("float32")
        if (fitted > scale).any():
            raised[name] = (fitted, zero_point)

    def _step(self, data: relax.Expr) -> float | None:
        """Scale of the codes that a contraction reads."""
        quantizers = quantizers_of(data, self.values)
        if not quantizers or not all(is_calibrated(quantizer) for quantizer in quantizers):
            return None
        return max(float(scale_of(quantizer)[0].max()) for quantizer in quantizers)

    def _addend(self, var: relax.Var, axis: int, channels: int) -> Array:
        """Largest absolute value that is added to each channel of an accumulator: (channels,)."""
        largest = np.zeros(channels)
        for user, port in self.uses[var]:
            value = self._value(user)
            role = role_of(value)
            if role not in (Role.SUM, Role.CLAMP, Role.PRODUCT):
                continue
            reach = self._addend(user, axis, channels)
            if role is not Role.CLAMP:
                other = self._magnitude(value.args[1 - port])
                other = to_output_vector(other, axis, var, channels)
                reach = reach + other if role is Role.SUM else _quotient(reach, other)
            largest = np.maximum(largest, reach)
        return largest

    def _magnitude(self, operand: relax.Expr) -> Array:
        """Largest absolute values of a constant or of a tensor of codes; 0 where unknown."""
        known = constant_value(operand)
        if known is not None:
            return np.asarray(np.abs(known), "float64")
        value = self._value(operand)
        if op_name(value) == "relax.multiply":
            return np.asarray(self._magnitude(value.args[0]) * self._magnitude(value.args[1]))
        quantizers = [q for q in quantizers_of(operand, self.values) if is_calibrated(q)]
        return np.asarray(max((_largest(quantizer) for quantizer in quantizers), default=0.0))

    def _value(self, operand: relax.Expr | None) -> Any:
        return self.values.get(operand)


def _largest(quantizer: relax.Call) -> float:
    """Largest absolute value on the grid of a quantizer."""
    scale, zero_point = scale_of(quantizer)
    spec = spec_of(quantizer)
    codes = np.maximum(spec.qmax - zero_point, zero_point - spec.qmin)
    return float((codes * scale.astype("float64")).max())


def _quotient(reach: Array, factor: Array) -> Array:
    """What is added after a product, seen before it; Realize keeps the scale where it is by 0."""
    return np.asarray(reach / np.where(factor == 0, 1.0, factor))
