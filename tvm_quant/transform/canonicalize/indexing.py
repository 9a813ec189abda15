"""`take` at constant positions is a slice, which moves data and computes nothing.

At computed positions it wraps: TVM's "fast" mode reads outside the tensor where an index is wrong.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from tvm_quant.ir import constant_value, tensor_shape
from tvm_quant.transform.canonicalize.rewriter import Rule, Scope


def slice_constant_positions(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """One position, or evenly spaced ones in ascending order, along a known axis."""
    positions, shape = constant_value(call.args[1]), tensor_shape(call.args[0])
    if positions is None or positions.size == 0 or positions.ndim > 1 or shape is None:
        return None
    axis = int(call.attrs.axis or 0) % len(shape)
    size = shape[axis]
    if size is None:
        if positions.min() < 0:
            return None
    elif np.any((positions < -size) | (positions >= size)):
        return None
    else:
        positions = positions % size
    if positions.ndim == 0:
        at = int(positions)
        part = relax.op.strided_slice(call.args[0], [axis], [at], [at + 1])
        return relax.op.squeeze(scope.emit(part, like=scope.current), [axis])
    steps = np.unique(np.diff(positions))
    if steps.size > 1 or (steps.size and steps[0] < 1):
        return None
    step = int(steps[0]) if steps.size else 1
    first, last = int(positions[0]), int(positions[-1])
    return relax.op.strided_slice(call.args[0], [axis], [first], [last + 1], [step])


def wrap_computed_positions(_scope: Scope, call: relax.Call) -> relax.Expr | None:
    """No access outside the tensor, whatever the indices; the same result for all valid ones."""
    if str(call.attrs.mode) != "fast":
        return None
    axis = call.attrs.axis
    return relax.op.take(*call.args, None if axis is None else int(axis), mode="wrap")


RULES = (
    Rule(operators=("take",), rewrite=slice_constant_positions),
    Rule(operators=("take",), rewrite=wrap_computed_positions),
)
