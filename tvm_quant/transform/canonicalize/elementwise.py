"""Sums and products with a constant: it stands on the right, in the smallest shape that will do.

    c + x -> x + c        x - c -> x + (-c)        (x + c) + d -> x + (c + d)
    c * x -> x * c        x / c -> x * (1/c)       (x * c) * d -> x * (c * d)

A constant of one value becomes rank 0, any other the rank of the tensor (but for vectors along the
last axis, which stay as they are).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from tvm_quant.ir import constant_value, op_name, tensor_shape
from tvm_quant.transform.canonicalize.contraction import channel_axis
from tvm_quant.transform.canonicalize.rewriter import Rule, Scope, constant

Array = npt.NDArray[Any]

_INVERSE: dict[str, tuple[Callable[..., relax.Expr], Callable[[Array], Array]]] = {
    "relax.subtract": (relax.op.add, np.negative),
    "relax.divide": (relax.op.multiply, np.reciprocal),
}
_MERGE: dict[str, tuple[Callable[..., relax.Expr], Callable[[Array, Array], Array]]] = {
    "relax.add": (relax.op.add, np.add),
    "relax.multiply": (relax.op.multiply, np.multiply),
}


def use_inverse(_scope: Scope, call: relax.Call) -> relax.Expr | None:
    """X - c and x / c of floats; a division by 0 stays."""
    value = constant_value(call.args[1])
    if value is None or value.dtype.kind != "f":
        return None
    if op_name(call) == "relax.divide" and not np.all(value):
        return None
    operator, inverse = _INVERSE[str(call.op.name)]
    return operator(call.args[0], constant(inverse(value), str(value.dtype)))


def constant_to_the_right(_scope: Scope, call: relax.Call) -> relax.Expr | None:
    """Operands of a commutative call."""
    left, right = call.args
    if constant_value(left) is None or constant_value(right) is not None:
        return None
    return _MERGE[str(call.op.name)][0](right, left)


def merge_constants(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """Two sums or two products in a row."""
    value = constant_value(call.args[1])
    inner = scope.value(call.args[0])
    if value is None or op_name(inner) != op_name(call) or not scope.used_once(call.args[0]):
        return None
    first = constant_value(inner.args[1])
    if first is None or value.dtype.kind != "f":
        return None
    operator, merge = _MERGE[str(call.op.name)]
    both = merge(first.astype("float64"), value.astype("float64")).astype(value.dtype)
    return operator(inner.args[0], constant(both, str(value.dtype)))


def compact_constant(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """The smallest shape with which the constant broadcasts to the tensor."""
    data, other = call.args
    value, shape = constant_value(other), tensor_shape(data)
    if value is None or shape is None or constant_value(data) is not None:
        return None
    if value.ndim > len(shape):
        return None
    if channel_axis(scope.value(data)) is not None:  # a bias keeps its form
        return None
    compact = compacted(value, shape)
    if compact.shape == value.shape:
        return None
    return _MERGE[str(call.op.name)][0](data, constant(compact, str(value.dtype)))


def compacted(value: Array, shape: tuple[int | None, ...]) -> Array:
    """A constant without the axes along which it repeats itself, as far as a tensor has them."""
    full = value.reshape((1,) * (len(shape) - value.ndim) + value.shape)
    for axis, size in enumerate(full.shape):
        first = full.take([0], axis) if size else full
        if size > 1 and shape[axis] == size and np.all(full == first):
            full = first
    if full.size == 1:
        return full.reshape(())
    return value if value.ndim == 1 and value.size == full.size else full


RULES = (
    Rule(operators=("subtract", "divide"), rewrite=use_inverse),
    Rule(operators=("add", "multiply"), rewrite=constant_to_the_right),
    Rule(operators=("add", "multiply"), rewrite=merge_constants),
    Rule(operators=("add", "multiply"), rewrite=compact_constant),
)
