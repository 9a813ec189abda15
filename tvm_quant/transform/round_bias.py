"""RoundBias: round each bias to the accumulator it will be added to.

Before    y = R.nn.conv2d(q, simulated_quantize(w, t)) + b
After     y = R.nn.conv2d(q, simulated_quantize(w, t)) + round(b / (s t)) s t

with the scale s of `q`. Realize adds a bias as an integer, so this changes no bit of its result; it
makes the float simulation add the same. Comes last, after CorrectBias.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm import IRModule, relax

from tvm_quant.ir import bindings, constant_value, consumers, tensor_shape
from tvm_quant.ir.signature import main_function
from tvm_quant.op import Role, contraction_axes, is_calibrated, is_simulated, role_of, scale_of
from tvm_quant.transform.channel_vector import Array, scale_per_output
from tvm_quant.transform.code_sources import quantizers_of
from tvm_quant.transform.correct_bias import add_to_biases, bias_of


@tvm.transform.module_pass(opt_level=0, name="RoundBias")
class RoundBias:
    """Round the bias of every quantized convolution and matmul to its accumulator's scale."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """Run the pass."""
        func = main_function(mod)
        values = {binding.var: binding.value for binding in bindings(func)}
        uses = consumers(func)
        changes: dict[str, Array] = {}
        for var, call in values.items():
            bias = bias_of(var, values, uses) if role_of(call) is Role.CONTRACTION else None
            change = None if bias is None else _rounding(var, values[bias], values)
            if change is not None:
                changes[str(var.name)] = change
        return add_to_biases(mod, changes)


def _rounding(
    var: relax.Var, addition: relax.Call, values: Mapping[relax.Var, Any]
) -> Array | None:
    """What rounding adds to the bias of each output channel: (O,); None where nothing is rounded.

    That is where no integers are summed, or where the constant is no vector of channels.
    """
    call = values[var]
    channels = (tensor_shape(var) or ())[contraction_axes(call).output] or 0
    bias = next(known for known in map(constant_value, addition.args) if known is not None)
    scale = _accumulator_scale(call, values)
    if scale is None or any(array.size not in (1, channels) for array in (bias, scale)):
        return None
    wanted, step = (np.broadcast_to(a.reshape(-1), (channels,)) for a in (bias, scale))
    return np.asarray(np.round(wanted / step) * step - wanted)


def _accumulator_scale(call: relax.Call, values: Mapping[relax.Var, Any]) -> Array | None:
    """Scale of the sums of a contraction of codes, broadcastable to its result."""
    data, weight = quantizers_of(call.args[0], values), values.get(call.args[1])
    if not data or not is_simulated(weight) or not all(map(is_calibrated, [*data, weight])):
        return None
    step, known = scale_of(data[0])[0], constant_value(weight.args[0])
    if step.size != 1 or known is None:
        return None
    return float(step) * scale_per_output(call, scale_of(weight)[0].astype("float64"), known.shape)
