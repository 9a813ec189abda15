"""Inference form: no dropout, batch norm as a multiplication and an addition, split as slices.

y = (x - mean) / sqrt(var + eps) * gamma + beta = x * s + t,
s = gamma / sqrt(var + eps),  t = beta - mean * s
"""

from __future__ import annotations

import logging

import numpy as np
import numpy.typing as npt
from tvm import relax

from tvm_quant.ir import constant_value, op_name, tensor_shape
from tvm_quant.transform.canonicalize.rewriter import TUPLE_ITEM, Rule, Scope, constant

_LOG = logging.getLogger(__name__)


def unpack(scope: Scope, item: relax.Expr) -> relax.Expr | None:
    """An item of the tuple that dropout, batch norm, split or a written tuple returns."""
    call = scope.value(item.tuple_value)
    if isinstance(call, relax.Tuple):
        return call.fields[item.index]
    rewrite = _UNPACK.get(op_name(call) or "")
    return None if rewrite is None else rewrite(scope, item, call)


def _dropout(_scope: Scope, item: relax.TupleGetItem, call: relax.Call) -> relax.Expr | None:
    return call.args[0] if item.index == 0 else None


def _batch_norm(scope: Scope, item: relax.TupleGetItem, call: relax.Call) -> relax.Expr | None:
    constants = [constant_value(arg) for arg in call.args[1:]]
    if any(value is None for value in constants):
        return None
    if item.index > 0:  # at inference the running statistics stay what they are
        return call.args[2 + item.index]
    if call.attrs.training:
        _LOG.warning(
            "Batch norm '%s' is in training mode; its running statistics are used as at inference.",
            item.tuple_value.name,
        )
    scale, shift = batch_norm_affine(call)
    shape = [1] * len(tensor_shape(call.args[0]) or ())
    shape[int(call.attrs.axis)] = -1
    scaled = relax.op.multiply(call.args[0], constant(scale.reshape(shape)))
    return relax.op.add(scope.emit(scaled, item.tuple_value), constant(shift.reshape(shape)))


def batch_norm_affine(
    call: relax.Call,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Scale and shift, float32 (C,), of a batch norm with constant parameters."""
    gamma, beta, mean, var = (_as_double(arg) for arg in call.args[1:])
    scale = (gamma if call.attrs.scale else 1.0) / np.sqrt(var + float(call.attrs.epsilon))
    shift = (beta if call.attrs.center else 0.0) - mean * scale
    return scale.astype("float32"), shift.astype("float32")


def _as_double(expr: relax.Expr) -> npt.NDArray[np.float64]:
    value = constant_value(expr)
    assert value is not None
    return value.astype("float64")


def _split(_scope: Scope, item: relax.TupleGetItem, call: relax.Call) -> relax.Expr | None:
    axis = int(call.attrs.axis)
    size = (tensor_shape(call.args[0]) or ())[axis]
    if size is None:
        return None
    sections = call.attrs.indices_or_sections
    if hasattr(sections, "value"):
        width = -(-size // int(sections.value))
        bounds = [min(i * width, size) for i in range(int(sections.value) + 1)]
    else:
        bounds = [0, *(min(int(index), size) for index in sections), size]
    begin, end = bounds[item.index : item.index + 2]
    return relax.op.strided_slice(call.args[0], [axis], [begin], [end])


_UNPACK = {
    "relax.nn.dropout": _dropout,
    "relax.nn.batch_norm": _batch_norm,
    "relax.split": _split,
}


def name_fields(scope: Scope, call: relax.Call) -> relax.Expr | None:
    """A concatenation of all that a call returns: of the items of that tuple, one by one."""
    joined = call.args[0]
    if isinstance(joined, relax.Tuple):
        return None
    items = (relax.TupleGetItem(joined, index) for index in range(len(joined.ty.fields)))
    fields = relax.Tuple([scope.emit(item, joined) for item in items])
    return relax.Call(call.op, [fields], call.attrs)


RULES = (
    Rule(operators=(TUPLE_ITEM,), rewrite=unpack),
    Rule(operators=("concat",), rewrite=name_fields),
)
