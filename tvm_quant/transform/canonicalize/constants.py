"""Folding of calls on constants, by NumPy: compiling a kernel for each would take seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax

from tvm_quant.ir import constant_value, op_name
from tvm_quant.ir.bindings import flat_operands
from tvm_quant.transform.canonicalize.rewriter import Rule, Scope, constant

Array = npt.NDArray[Any]
_MAX_GROWTH_BYTES = 1 << 24


def fold(_scope: Scope, call: relax.Call) -> relax.Expr | None:
    """A call whose tensor operands are all constant."""
    operands = [arg for arg in flat_operands(call) if isinstance(arg.ty, relax.TensorType)]
    arrays = [array for arg in operands if (array := constant_value(arg)) is not None]
    if len(arrays) < len(operands) or not isinstance(call.ty, relax.TensorType):
        return None
    if not _has_static_shape(call.ty) or (not arrays and op_name(call) not in _CREATORS):
        return None
    with np.errstate(all="ignore"):
        result = FUNCTIONS[(op_name(call) or "").removeprefix("relax.")](call, *arrays)
    if result is None:
        return None
    result = np.asarray(result).astype(str(call.ty.dtype))
    if result.nbytes > _MAX_GROWTH_BYTES + sum(array.nbytes for array in arrays):
        return None
    return constant(result, str(call.ty.dtype))


def fold_shape(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """The shape of a tensor, as a tensor."""
    source = scope.value(call.args[0])
    if op_name(source) == "relax.shape_of":
        source = source.args[0].ty.shape
    if not isinstance(source, relax.ShapeExpr):
        return None
    if not all(isinstance(d, tvm.tirx.IntImm) for d in source.values):
        return None
    return constant([int(d) for d in source.values], "int64")


def _has_static_shape(ty: relax.TensorType) -> bool:
    if not isinstance(ty.shape, relax.ShapeExpr):
        return False
    return all(isinstance(d, tvm.tirx.IntImm) for d in ty.shape.values)


def _shape(call: relax.Call) -> tuple[int, ...]:
    return tuple(int(d) for d in call.ty.shape.values)


def _elementwise(function: Callable[..., Any]) -> Callable[..., Array]:
    return lambda _call, *arrays: np.asarray(function(*arrays))


def _reduction(function: Callable[..., Any]) -> Callable[..., Array]:
    def reduce(call: relax.Call, x: Array) -> Array:
        axis = None if call.attrs.axis is None else tuple(int(a) for a in call.attrs.axis)
        return np.asarray(function(x, axis=axis, keepdims=bool(call.attrs.keepdims)))

    return reduce


def _as_shape(call: relax.Call, x: Array) -> Array:
    return x.reshape(_shape(call))


def _permute(call: relax.Call, x: Array) -> Array:
    axes = call.attrs.axes
    return np.transpose(x, None if axes is None else [int(a) for a in axes])


def _concat(call: relax.Call, *arrays: Array) -> Array:
    axis = call.attrs.axis
    return np.concatenate([a.reshape(-1) if axis is None else a for a in arrays], int(axis or 0))


def _take(call: relax.Call, x: Array, indices: Array) -> Array:
    axis = call.attrs.axis
    return np.take(x, indices, None if axis is None else int(axis), mode="wrap")


def _slice(call: relax.Call, x: Array) -> Array | None:
    axes, begin, end, *strides = ([int(v) for v in arg.fields] for arg in call.args[1:])
    steps = strides[0] if strides else [1] * len(axes)
    if min(steps) < 1:
        return None
    index = [slice(None)] * x.ndim
    for axis, *bounds in zip(axes, begin, end, steps, strict=True):
        index[axis] = slice(*bounds)
    return x[tuple(index)]


def _divide(call: relax.Call, a: Array, b: Array) -> Array | None:
    return a / b if str(call.ty.dtype).startswith("float") else None


def _clip(call: relax.Call, x: Array) -> Array:
    return np.clip(x, float(call.args[1].value), float(call.args[2].value))


def _full(call: relax.Call, *arrays: Array) -> Array:
    name = str(call.op.name)
    value = arrays[-1] if "full" in name else np.asarray(0 if "zeros" in name else 1)
    return np.broadcast_to(value, _shape(call))


def _arange(call: relax.Call) -> Array:
    return np.arange(*(arg.value for arg in call.args))


def _cast(_call: relax.Call, x: Array) -> Array:
    return x  # `fold` brings every result to the type of the call


def _tile(call: relax.Call, x: Array) -> Array:
    return np.tile(x, [int(r) for r in call.attrs.repeats])


_CREATORS = ("relax.zeros", "relax.ones", "relax.arange")

FUNCTIONS: dict[str, Callable[..., Array | None]] = {
    **dict.fromkeys(("reshape", "squeeze", "expand_dims", "flatten"), _as_shape),
    **dict.fromkeys(("zeros", "ones", "zeros_like", "ones_like", "full", "full_like"), _full),
    "abs": _elementwise(np.abs),
    "add": _elementwise(np.add),
    "arange": _arange,
    "astype": _cast,
    "broadcast_to": lambda call, x: np.broadcast_to(x, _shape(call)),
    "ceil": _elementwise(np.ceil),
    "clip": _clip,
    "concat": _concat,
    "divide": _divide,
    "equal": _elementwise(np.equal),
    "exp": _elementwise(np.exp),
    "floor": _elementwise(np.floor),
    "floor_divide": _elementwise(np.floor_divide),
    "greater": _elementwise(np.greater),
    "greater_equal": _elementwise(np.greater_equal),
    "isfinite": _elementwise(np.isfinite),
    "isinf": _elementwise(np.isinf),
    "isnan": _elementwise(np.isnan),
    "less": _elementwise(np.less),
    "less_equal": _elementwise(np.less_equal),
    "log": _elementwise(np.log),
    "logical_and": _elementwise(np.logical_and),
    "logical_not": _elementwise(np.logical_not),
    "logical_or": _elementwise(np.logical_or),
    "max": _reduction(np.max),
    "maximum": _elementwise(np.maximum),
    "mean": _reduction(np.mean),
    "min": _reduction(np.min),
    "minimum": _elementwise(np.minimum),
    "multiply": _elementwise(np.multiply),
    "negative": _elementwise(np.negative),
    "not_equal": _elementwise(np.not_equal),
    "permute_dims": _permute,
    "power": _elementwise(np.power),
    "round": _elementwise(np.round),
    "rsqrt": _elementwise(lambda x: 1 / np.sqrt(x)),
    "sqrt": _elementwise(np.sqrt),
    "square": _elementwise(np.square),
    "strided_slice": _slice,
    "subtract": _elementwise(np.subtract),
    "sum": _reduction(np.sum),
    "take": _take,
    "tanh": _elementwise(np.tanh),
    "tile": _tile,
    "where": _elementwise(np.where),
}

RULES = (
    Rule(operators=tuple(FUNCTIONS), rewrite=fold),
    Rule(operators=("shape_to_tensor",), rewrite=fold_shape),
)
