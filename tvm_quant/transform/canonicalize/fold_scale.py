"""A product behind a contraction goes into its weights and bias.

    (x @ w) * s -> x @ (w * s)        (x @ w + b) * s -> x @ (w * s) + b * s

Weights that several calls share stay shared: a plain number behind one of them is left in place,
because it only changes the scale of the result. A scale per channel (batch norm) is worth the copy.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from tvm import relax

from tvm_quant.ir import constant_value, op_name, tensor_shape
from tvm_quant.transform.canonicalize.contraction import (
    Weights,
    channel_axis,
    is_contraction,
    per_channel,
    scaled_outputs,
)
from tvm_quant.transform.canonicalize.rewriter import Rule, Scope, constant


def fold_scale(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """Product with a constant per output channel, or with a number."""
    data, other = call.args
    value = constant_value(other)
    if value is None or not scope.used_once(data):
        return None
    inner = scope.value(data)
    if is_contraction(inner):
        factor = _factor(scope, inner, value)
        return None if factor is None else scope.emit(scaled_outputs(inner, factor), like=data)
    bias = constant_value(inner.args[1]) if op_name(inner) == "relax.add" else None
    if bias is None or not scope.used_once(inner.args[0]):
        return None
    contraction = scope.value(inner.args[0])
    if not is_contraction(contraction):
        return None
    factor = _factor(scope, contraction, value)
    if factor is None:
        return None
    scaled = scope.emit(scaled_outputs(contraction, factor), like=inner.args[0])
    return relax.op.add(scaled, constant(bias.astype("float64") * value))


def _factor(
    scope: Scope, contraction: relax.Call, value: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32] | None:
    axis, rank = channel_axis(contraction), len(tensor_shape(contraction) or ())
    if axis is None or (value.size == 1 and scope.is_shared(contraction.args[1])):
        return None
    return per_channel(value, rank, axis, Weights(contraction).outputs)


RULES = (Rule(operators=("multiply",), rewrite=fold_scale),)
