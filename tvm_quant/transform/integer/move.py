"""Operators that move integers untouched, and concat."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from tvm import relax

from tvm_quant.ir import constant, constant_value, op_name, tensor_shape
from tvm_quant.op import Convention, spec_for
from tvm_quant.transform.canonicalize.constants import FUNCTIONS
from tvm_quant.transform.channel_vector import with_rank
from tvm_quant.transform.integer.emitter import Emitter, rank
from tvm_quant.transform.integer.value import Accumulator, Array, Codes, Value

# Operators whose result has the elements of the operand in another place, each once.
_REARRANGES = frozenset(
    f"relax.{name}" for name in ("reshape", "permute_dims", "flatten", "squeeze", "expand_dims")
)
_FIELDS: dict[type, tuple[str, ...]] = {
    Codes: ("scale", "zero_point"),
    Accumulator: ("scale", "bound", "offset", "fraction", "low", "high", "residue"),
}


def realize_move(emitter: Emitter, call: relax.Call, operands: list[Value]) -> Value | None:
    """The same call on the codes; padding with 0 pads with the zero point."""
    value = operands[0]
    if isinstance(value, Codes) and constant_value(value.expr) is not None:
        return _move_constant(call, value)
    if isinstance(value, Accumulator) and _moves_channels(call, value, emitter.exact):
        return replace(value, expr=emitter.emit(_same_call(call, value.expr, 0.0)))
    if emitter.exact and isinstance(value, Accumulator):
        value = _with_one_bound(emitter.add_offset(value))
    if emitter.exact and isinstance(value, Codes | Accumulator) and _is_varied(value):
        return _move_with_scales(emitter, call, value)
    if emitter.exact and isinstance(value, Accumulator) and not _pads(call):
        return replace(value, expr=emitter.emit(_same_call(call, value.expr, 0.0)))
    foreign = emitter.convention is not Convention.BACKEND
    if foreign and isinstance(value, Accumulator) and op_name(call) == "relax.permute_dims":
        return _permute(emitter, call, value)
    if isinstance(value, Accumulator) and value.scale.size == 1:
        if emitter.exact and value.residue.any():
            return None
        value = emitter.apply_clamp(value)
        bare = replace(
            value,
            scale=value.scale.reshape(()),
            bound=value.bound.max(),
            offset=np.zeros((), "int64"),
            residue=value.residue if value.residue.size == 1 else np.zeros(()),
        )
        return replace(bare, expr=emitter.emit(_same_call(call, value.expr, 0.0)))
    if not isinstance(value, Codes) or value.scale.size != 1:
        return None
    return replace(value, expr=emitter.emit(_same_call(call, value.expr, float(value.zero_point))))


def realize_join(emitter: Emitter, call: relax.Call, operands: list[Value]) -> Value | None:
    """Concat of codes of one grid."""
    first = operands[0]
    if not isinstance(first, Codes):
        return None
    fields = [value for value in operands if isinstance(value, Codes) and value.same_grid(first)]
    if len(fields) != len(operands):
        return None
    joined = relax.op.concat([codes.expr for codes in fields], axis=call.attrs.axis)
    return replace(first, expr=emitter.emit(joined))


def _is_varied(value: Codes | Accumulator) -> bool:
    """Whether elements differ in more than their integers."""
    return any(np.size(getattr(value, name)) > 1 for name in _FIELDS[type(value)])


def _pads(call: relax.Call) -> bool:
    """Whether new elements join, which no pending clamp or constant is for."""
    return op_name(call) == "relax.nn.pad"


def _with_one_bound(acc: Accumulator) -> Accumulator:
    """An accumulator without an offset, bounded by the largest of its elements' bounds."""
    fraction = acc.fraction if acc.fraction.any() else np.zeros((), "int64")
    bound = np.asarray(acc.bound.max())
    return replace(acc, bound=bound, offset=np.zeros((), "int64"), fraction=fraction)


def _move_with_scales(
    emitter: Emitter, call: relax.Call, value: Codes | Accumulator
) -> Value | None:
    """The call on the integers, and on the arrays that belong to each of their elements."""
    shape = [-1 if size is None else size for size in tensor_shape(value.expr) or ()]
    function = FUNCTIONS.get((op_name(call) or "").removeprefix("relax."))
    if function is None or op_name(call) not in _REARRANGES or min(shape, default=-1) < 0:
        return None
    arrays: dict[str, Any] = {
        name: _shared(np.asarray(function(call, np.broadcast_to(getattr(value, name), shape))))
        for name in _FIELDS[type(value)]
    }
    return replace(value, expr=emitter.emit(_same_call(call, value.expr, 0.0)), **arrays)


def _moves_channels(call: relax.Call, acc: Accumulator, exact: bool) -> bool:
    """Whether channels of the operand are channels of the result, and all there is to an array."""
    spec = spec_for(call)
    return spec is not None and spec.keeps_channels and _is_per_channel(acc, exact)


def _permute(emitter: Emitter, call: relax.Call, acc: Accumulator) -> Accumulator:
    """The axes of what is pending go with those of the tensor."""
    ndim = rank(acc.expr)
    axes = [int(axis) for axis in call.attrs.axes or reversed(range(ndim))]
    arrays = {name: getattr(acc, name) for name in _FIELDS[Accumulator]}
    moved = {
        name: with_rank(array, ndim).transpose(axes) if array.ndim else array
        for name, array in arrays.items()
    }
    expr = emitter.emit(relax.Call(call.op, [acc.expr], call.attrs, call.ty_args))
    return replace(acc, expr=expr, **moved)


def _is_per_channel(acc: Accumulator, exact: bool) -> bool:
    """Whether scale, constants and clamp are the same all over a channel, but not over all."""
    arrays = (acc.offset, acc.residue, acc.low, acc.high, acc.bound)
    size = max(acc.scale.size, acc.residue.size if exact else 1)
    return size > 1 and all(array.size <= size for array in arrays)


def _move_constant(call: relax.Call, codes: Codes) -> Codes | None:
    """The codes of a constant moved beforehand, and the scale of each with it."""
    name = (op_name(call) or "").removeprefix("relax.")
    if name not in FUNCTIONS:
        return None
    known = constant_value(codes.expr)
    assert known is not None, "realize_move() asks"
    move = partial(FUNCTIONS[name], call)
    data = move(known)
    scale = move(np.broadcast_to(codes.scale, known.shape))
    zero_point = move(np.broadcast_to(codes.zero_point, known.shape))
    if data is None or scale is None or zero_point is None:
        return None
    same = _shared_axes(scale) & _shared_axes(zero_point)
    keep = tuple(slice(0, 1) if axis in same else slice(None) for axis in range(scale.ndim))
    kept = () if len(same) == scale.ndim else scale[keep].shape
    scale, zero_point = (array[keep].reshape(kept) for array in (scale, zero_point))
    return replace(codes, expr=constant(data), scale=scale, zero_point=zero_point)


def _shared(array: Array) -> Array:
    """With one element along axes where nothing changes; a number if that is all of them."""
    same = _shared_axes(array)
    index = tuple(slice(0, 1) if axis in same else slice(None) for axis in range(array.ndim))
    return array[index].reshape(() if len(same) == array.ndim else array[index].shape)


def _shared_axes(array: Array) -> set[int]:
    """Axes along which nothing changes."""
    return {axis for axis in range(array.ndim) if (array == array.take([0], axis)).all()}


def _same_call(call: relax.Call, data: relax.Expr, zero: float) -> relax.Call:
    if op_name(call) == "relax.nn.pad":
        width, mode = list(call.attrs.pad_width), str(call.attrs.pad_mode)
        return relax.op.nn.pad(data, width, mode, zero)
    return relax.Call(call.op, [data, *call.args[1:]], call.attrs, call.ty_args)
