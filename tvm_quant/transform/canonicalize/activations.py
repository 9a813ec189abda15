"""Activations and pools that front ends write out, as the operator they are."""

from __future__ import annotations

import numpy as np
from tvm import relax

from tvm_quant.ir import constant_value, op_name, tensor_shape
from tvm_quant.transform.canonicalize.contraction import per_channel
from tvm_quant.transform.canonicalize.rewriter import Rule, Scope, constant


def leaky_relu(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """where(x > 0, x, x * slope) is `leakyrelu`, or `prelu` with a slope per channel."""
    condition, positive, negative = (scope.value(arg) for arg in call.args)
    data = call.args[1]
    if op_name(condition) not in ("relax.greater", "relax.greater_equal"):
        return None
    if op_name(negative) != "relax.multiply" or not positive.same_as(scope.value(data)):
        return None
    zero, slope = constant_value(condition.args[1]), constant_value(negative.args[1])
    same = condition.args[0].same_as(data) and negative.args[0].same_as(data)
    if not same or zero is None or np.any(zero) or slope is None:
        return None
    return _prelu(data, slope)


def one_slope(_scope: Scope, call: relax.Call) -> relax.Expr | None:
    """A prelu whose slopes are all equal."""
    slope = constant_value(call.args[1])
    if slope is None or not slope.size or np.any(slope != slope.flat[0]):
        return None
    return relax.op.nn.leakyrelu(call.args[0], float(slope.flat[0]))


def global_pool(_scope: Scope, call: relax.Call) -> relax.Expr | None:
    """Adaptive average pooling to one cell is a mean."""
    size = call.attrs.output_size
    if size is None or any(int(side) != 1 for side in size):
        return None
    axes = [axis for axis, name in enumerate(str(call.attrs.layout)) if name in "DHW"]
    return relax.op.mean(call.args[0], axis=axes, keepdims=True)


def _prelu(data: relax.Expr, slope: np.ndarray) -> relax.Expr | None:
    if slope.size == 1:
        return relax.op.nn.leakyrelu(data, float(slope.item()))
    shape = tensor_shape(data) or ()
    for axis, size in enumerate(shape):
        vector = per_channel(slope, len(shape), axis, size or 0)
        if vector is not None:
            return relax.op.nn.prelu(data, constant(vector), axis)
    return None


RULES = (
    Rule(operators=("where",), rewrite=leaky_relu),
    Rule(operators=("nn.prelu",), rewrite=one_slope),
    Rule(operators=tuple(f"nn.adaptive_avg_pool{n}d" for n in (1, 2, 3)), rewrite=global_pool),
)
