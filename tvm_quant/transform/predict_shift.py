"""Predicting the mean shift of each weighted layer from the rounding of its weights.

    E[y_q - y] [o]  =  sum over c, t of (w_q - w)[o, c, t] * E[x_c] * coverage[t]

with the profiled mean of each input channel, and how often a tap meets a value (tap_coverage.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tvm import relax

from tvm_quant.ir import bindings, constant_value, op_name, tensor_shape
from tvm_quant.ir.signature import main_function
from tvm_quant.op import (
    Role,
    contraction_axes,
    is_calibrated,
    is_simulated,
    role_of,
    scale_of,
    simulated_quantize_numpy,
    spec_of,
)
from tvm_quant.statistics import Statistics, without_outliers
from tvm_quant.transform.channel_readers import CHANNELWISE
from tvm_quant.transform.channel_vector import Array, by_input_group, weight_by_output
from tvm_quant.transform.tap_coverage import tap_coverage

Values = Mapping[relax.Var, Any]


def predict_shifts(mod: Any, statistics: Statistics) -> dict[str, Array]:
    """Mean of the quantized result minus mean of the float result, per output channel.

    Args:
        mod: annotated, its weights calibrated.
        statistics: with the channels of what each layer reads; layers without are left out.

    Returns:
        {variable of the contraction: (O,) float64}.
    """
    values = {binding.var: binding.value for binding in bindings(main_function(mod))}
    shifts: dict[str, Array] = {}
    for var, call in values.items():
        if role_of(call) is not Role.CONTRACTION:
            continue
        error = _rounding_error(values.get(call.args[1]), call)
        mean = _channel_mean(call.args[0], values, statistics, contraction_axes(call).data)
        if error is not None and mean is not None:
            axes = contraction_axes(call)
            shifts[str(var.name)] = (error * by_input_group(mean, axes, len(error))).sum(axis=1)
    return shifts


def _rounding_error(weight: relax.Expr | None, call: relax.Call) -> Array | None:
    """Error of the weights, summed over taps as they meet values: (O, inputs of the group)."""
    if not is_simulated(weight) or not is_calibrated(weight):
        return None
    known = constant_value(weight.args[0])
    if known is None:
        return None
    rounded = simulated_quantize_numpy(known, *scale_of(weight), spec_of(weight))
    error = weight_by_output(rounded.astype("float64") - known, contraction_axes(call))
    return np.asarray(error @ tap_coverage(call))


def _channel_mean(
    operand: relax.Expr, values: Values, statistics: Statistics, axis: int
) -> Array | None:
    """Mean of each channel of the codes that a contraction reads."""
    quantizer = values.get(operand)
    source = quantizer.args[0] if is_simulated(quantizer) else operand
    if not isinstance(source, relax.Var):
        return None
    if is_simulated(quantizer) and _match_factors(source, values, statistics) is not None:
        source = values[source].args[0]
    stats = statistics.get(str(source.name))
    if stats is None or stats.channels is None or stats.channels.axis != axis:
        return None
    channels = without_outliers(stats).channels
    factors = _factors(operand, values, statistics, axis)
    return None if channels is None else channels.mean * factors


def _factors(operand: relax.Expr, values: Values, statistics: Statistics, axis: int) -> Array:
    """What MatchScales multiplied the channels of a tensor of codes by: (C,), or (1,) of one."""
    value: Any = values.get(operand)
    if is_simulated(value):
        factors = _match_factors(value.args[0], values, statistics)
        return np.ones(1) if factors is None else factors
    if op_name(value) in CHANNELWISE:
        return _factors(value.args[0], values, statistics, axis)
    if op_name(value) != "relax.concat":
        return np.ones(1)
    parts = [
        np.broadcast_to(_factors(field, values, statistics, axis), _channels(field, axis))
        for field in value.args[0].fields
    ]
    same_axis = int(value.attrs.axis) % len(tensor_shape(operand) or ()) == axis
    return np.concatenate(parts) if same_axis else np.ones(1)


def _match_factors(source: relax.Expr, values: Values, statistics: Statistics) -> Array | None:
    """Factors of MatchScales if `source` is a profiled tensor times these: (C,)."""
    product: Any = values.get(source)
    if op_name(product) != "relax.multiply" or str(source.name) in statistics:
        return None
    known = constant_value(product.args[1])
    return None if known is None else known.reshape(-1)


def _channels(operand: relax.Expr, axis: int) -> int:
    return int((tensor_shape(operand) or ())[axis] or 1)
