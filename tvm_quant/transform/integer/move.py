"""Operators that move integers untouched, and concat."""

from __future__ import annotations

from dataclasses import replace

from tvm import relax

from tvm_quant.ir import op_name
from tvm_quant.transform.integer.emitter import Emitter
from tvm_quant.transform.integer.value import Accumulator, Codes, Value


def realize_move(emitter: Emitter, call: relax.Call, operands: list[Value]) -> Value | None:
    """The same call on the codes; padding with 0 pads with the zero point."""
    value = operands[0]
    if isinstance(value, Accumulator) and value.scale.size == 1:
        value = emitter.apply_clamp(value)
        bare = replace(value, scale=value.scale.reshape(()), bound=value.bound.max())
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


def _same_call(call: relax.Call, data: relax.Expr, zero: float) -> relax.Call:
    if op_name(call) == "relax.nn.pad":
        width, mode = list(call.attrs.pad_width), str(call.attrs.pad_mode)
        return relax.op.nn.pad(data, width, mode, zero)
    return relax.Call(call.op, [data, *call.args[1:]], call.attrs, call.ty_args)
