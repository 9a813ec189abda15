"""Sums and products in front of a contraction go into its weights and bias.

    (x * s) @ w     -> x @ (s * w)
    (x * s + t) @ w -> x @ (s * w) + t @ w

A convolution that pads puts zeros around x * s + t, which no padding of x stands for: with a shift
nothing is folded then. Weights that several calls share are left alone.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from tvm import relax

from tvm_quant.ir import constant_value, op_name, tensor_shape
from tvm_quant.op import contraction_axes
from tvm_quant.transform.canonicalize.contraction import (
    Weights,
    bias_shape,
    is_contraction,
    is_padded,
    per_channel,
)
from tvm_quant.transform.canonicalize.rewriter import Rule, Scope, constant

Vector = npt.NDArray[np.float64]


def fold_input(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """Per input channel, or with numbers; only where nothing else reads the affine tensor."""
    if not is_contraction(call) or scope.is_shared(call.args[1]):
        return None
    weights = Weights(call)
    root, scale, shift = _affine(scope, call, weights.inputs)
    if root.same_as(call.args[0]):
        return None
    args = [root, constant(weights.scaled(inputs=scale))]
    folded = relax.Call(call.op, args, call.attrs, call.ty_args)
    if not np.any(shift):
        return folded
    bias = weights.response(shift).reshape(bias_shape(call))
    return relax.op.add(scope.emit(folded, like=scope.current), constant(bias))


def _affine(scope: Scope, call: relax.Call, channels: int) -> tuple[relax.Expr, Vector, Vector]:
    """The operand as root * scale + shift, with the chain of constants followed upwards."""
    root: relax.Expr = call.args[0]
    scale, shift = np.ones(channels), np.zeros(channels)
    axis, rank = contraction_axes(call).data, len(tensor_shape(root) or ())
    operators = ("relax.add", "relax.multiply") if _takes_shift(call) else ("relax.multiply",)
    while scope.used_once(root):
        inner = scope.value(root)
        if op_name(inner) not in operators:
            break
        vector = _vector(scope, inner, rank, axis, channels)
        if vector is None:
            break
        if op_name(inner) == "relax.add":
            shift = shift + scale * vector
        else:
            scale = scale * vector
        root = inner.args[0]
    return root, scale, shift


def _takes_shift(call: relax.Call) -> bool:
    """Whether every output sees all weights, so that a constant in front is a constant behind."""
    if op_name(call) == "relax.matmul":
        return len(tensor_shape(call.args[1]) or ()) == 2
    return not is_padded(call) and not contraction_axes(call).transposed


def _vector(scope: Scope, inner: relax.Call, rank: int, axis: int, channels: int) -> Vector | None:
    """The constant of a sum or product per channel; None for the bias of another contraction."""
    value = constant_value(inner.args[1])
    if value is None or tensor_shape(inner.args[0]) != tensor_shape(inner):
        return None
    if is_contraction(scope.value(inner.args[0])):
        return None
    return per_channel(value, rank, axis, channels)


_OPERATORS = ("matmul", *(f"nn.conv{n}d{t}" for n in (1, 2, 3) for t in ("", "_transpose")))
RULES = (Rule(operators=_OPERATORS, rewrite=fold_input),)
