"""Calls that compute nothing: their operand takes their place."""

from __future__ import annotations

import numpy as np
import tvm_ffi
from tvm import relax

from tvm_quant.ir import constant_value, op_name, tensor_shape
from tvm_quant.transform.canonicalize.rewriter import Rule, Scope


def drop_same_shape(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """Reshape, broadcast_to, squeeze, expand_dims, flatten or slice to the shape it had."""
    data = call.args[0]
    if _same_type(data, call):
        return data
    inner = scope.value(data)
    if op_name(call) == "relax.reshape" and op_name(inner) in _RESHAPES and scope.used_once(data):
        return relax.op.reshape(inner.args[0], call.args[1])
    return None


def drop_slice(_scope: Scope, call: relax.Call) -> relax.Expr | None:
    """A slice that takes everything, forwards."""
    strides = call.args[4] if len(call.args) > 4 else None
    forwards = strides is None or all(int(s) == 1 for s in strides.fields)
    return call.args[0] if forwards and _same_type(call.args[0], call) else None


def drop_permutation(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """The identity; two permutations become one."""
    axes = _axes(call)
    if axes == sorted(axes):
        return call.args[0]
    inner = scope.value(call.args[0])
    if op_name(inner) != "relax.permute_dims" or not scope.used_once(call.args[0]):
        return None
    first = _axes(inner)
    return relax.op.permute_dims(inner.args[0], [first[axis] for axis in axes])


def drop_cast(_scope: Scope, call: relax.Call) -> relax.Expr | None:
    """To the type it had."""
    return call.args[0] if _same_type(call.args[0], call) else None


def drop_neutral(_scope: Scope, call: relax.Call) -> relax.Expr | None:
    """Adding 0, multiplying by 1."""
    neutral = 0 if op_name(call) == "relax.add" else 1
    left, right = call.args
    for data, other in ((left, right), (right, left)):
        value = constant_value(other)
        if value is not None and np.all(value == neutral) and _same_type(data, call):
            return data
    return None


def drop_padding(_scope: Scope, call: relax.Call) -> relax.Expr | None:
    """Of width 0."""
    return None if any(int(width) for width in call.attrs.pad_width) else call.args[0]


def drop_join(_scope: Scope, call: relax.Call) -> relax.Expr | None:
    """Concatenation of one tensor."""
    joined = call.args[0]
    return joined.fields[0] if isinstance(joined, relax.Tuple) and len(joined) == 1 else None


_RESHAPES = ("relax.reshape", "relax.squeeze", "relax.expand_dims", "relax.flatten")


def _axes(call: relax.Call) -> list[int]:
    rank = len(tensor_shape(call.args[0]) or ())
    axes = call.attrs.axes
    return list(range(rank))[::-1] if axes is None else [int(axis) % rank for axis in axes]


def _same_type(data: relax.Expr, call: relax.Call) -> bool:
    return bool(tvm_ffi.structural_equal(data.ty, call.ty))


RULES = (
    Rule(
        operators=("reshape", "broadcast_to", "squeeze", "expand_dims", "flatten"),
        rewrite=drop_same_shape,
    ),
    Rule(operators=("strided_slice",), rewrite=drop_slice),
    Rule(operators=("permute_dims",), rewrite=drop_permutation),
    Rule(operators=("astype",), rewrite=drop_cast),
    Rule(operators=("add", "multiply"), rewrite=drop_neutral),
    Rule(operators=("nn.pad",), rewrite=drop_padding),
    Rule(operators=("concat",), rewrite=drop_join),
)
