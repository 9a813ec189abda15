"""A bias is `add(contraction, constant)`: (1, C, 1, 1) for NCHW convolutions, (C,) for matmul."""

from __future__ import annotations

from tvm import relax

from tvm_quant.ir import constant_value, tensor_shape
from tvm_quant.transform.canonicalize.contraction import (
    Weights,
    bias_shape,
    channel_axis,
    per_channel,
)
from tvm_quant.transform.canonicalize.elementwise import compacted
from tvm_quant.transform.canonicalize.rewriter import Rule, Scope, constant


def shape_bias(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """Constants of every shape that is one value per output channel, a scalar included."""
    data, other = call.args
    value, contraction, shape = constant_value(other), scope.value(data), tensor_shape(data)
    axis = channel_axis(contraction)
    if value is None or axis is None or shape is None or value.ndim > len(shape):
        return None
    channels = Weights(contraction).outputs
    bias = per_channel(compacted(value, shape), len(shape), axis, channels)
    if bias is None:
        return None
    bias = bias.reshape(bias_shape(contraction))
    if bias.shape == value.shape:
        return None
    return relax.op.add(data, constant(bias, str(value.dtype)))


RULES = (Rule(operators=("add",), rewrite=shape_bias),)
