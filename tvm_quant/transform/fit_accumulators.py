"""FitAccumulators: raise weight scales until everything added to an accumulator fits into it.

A bias b becomes round(b / (s t)) at the accumulator's scale s t, and a residual operand with range
a becomes a / (s t). Where a channel's weights are tiny (t near 0), that leaves int32. The weights
of such a channel contribute next to nothing, so its t is raised until the largest addend takes 30
bits; the bias is never clipped.

Before    t[c] = 1e-11, b[c] = 5, s = 0.02      b / (s t) = 2.5e13
After     t[c] = 2.3e-7                         b / (s t) = 2**30

Needs CalibrateWeights and CalibrateActivations; comes after MatchScales.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import IRModule, relax

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
from tvm_quant.transform.channel_vector import Array, to_output_vector, to_weight_shape
from tvm_quant.transform.quantizers import set_scales

#: Bits that the largest addend may take, of 31.
ADDEND_BITS = 30


@tvm.transform.module_pass(opt_level=0, name="FitAccumulators")
class FitAccumulators:
    """Raise the weight scale of each output channel whose bias or residual would leave int32."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """Run the pass."""
        return set_scales(mod, _Fitter(main_function(mod)).scales())


class _Fitter:
    def __init__(self, func: relax.Function):
        self.values = {binding.var: binding.value for binding in bindings(func)}
        self.uses = consumers(func)

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
        data, weight = (self.values.get(arg) for arg in call.args)
        if not all(is_simulated(q) and is_calibrated(q) for q in (data, weight)):
            return
        axes = contraction_axes(call)
        name = str(call.args[1].name)
        scale, zero_point = raised.get(name, scale_of(weight))
        channels = (tensor_shape(var) or ())[axes.output]
        addend = self._addend(var, axes.output, channels)
        smallest = addend / (float(scale_of(data)[0].max()) * 2.0**ADDEND_BITS)
        fitted = np.maximum(scale, to_weight_shape(smallest, scale, axes)).astype("float32")
        if (fitted > scale).any():
            raised[name] = (fitted, zero_point)

    def _addend(self, var: relax.Var, axis: int, channels: int | None) -> Array:
        """Largest absolute value that is added to each channel of an accumulator."""
        largest = np.zeros(channels or 1)
        for user, port in self.uses[var]:
            value = self.values.get(user)
            if value is None:
                continue
            role = role_of(value)
            if role is Role.SUM:
                other = self._magnitude(value.args[1 - port])
                if other is not None:
                    largest = largest + to_output_vector(other, axis, var, largest.size)
            if role in (Role.SUM, Role.CLAMP):
                largest = np.maximum(largest, self._addend(user, axis, channels))
        return largest

    def _magnitude(self, operand: relax.Expr) -> Array | None:
        """Largest absolute values of a constant or of a quantized tensor."""
        known = constant_value(operand)
        if known is not None:
            return np.asarray(np.abs(known))
        quantizer = self.values.get(operand)
        if quantizer is not None and op_name(quantizer) == "relax.multiply":
            return self._scaled_magnitude(quantizer)
        if quantizer is None or not is_simulated(quantizer) or not is_calibrated(quantizer):
            return None
        scale, zero_point = scale_of(quantizer)
        spec = spec_of(quantizer)
        codes = np.maximum(spec.qmax - zero_point, zero_point - spec.qmin)
        return np.asarray((codes * scale.astype("float64")).max())

    def _scaled_magnitude(self, product: relax.Call) -> Array | None:
        """Of a quantized tensor times a constant."""
        factors = constant_value(product.args[1])
        magnitude = None if factors is None else self._magnitude(product.args[0])
        if factors is None or magnitude is None:
            return None
        return np.asarray(magnitude * np.abs(factors))
