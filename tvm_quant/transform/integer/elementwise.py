"""Sums, products, clamps and functions of one element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from tvm import relax

from tvm_quant.ir import constant, constant_value, tensor_shape
from tvm_quant.op import Convention, op_function
from tvm_quant.transform.integer.emitter import FRACTION_BITS, Emitter, rank, tabulated
from tvm_quant.transform.integer.residual import add_codes
from tvm_quant.transform.integer.value import Accumulator, Array, Codes, Float, Table, Value

#: Scales closer than this are one: of a bias and the product of two scales, both in float32.
SAME_SCALE = 1e-6

_SIGN = {"relax.add": 1, "relax.subtract": -1}


def realize_sum(emitter: Emitter, call: relax.Call, operands: list[Value]) -> Value | None:
    """A + b, a - b: on tables of the same codes, with a constant, or of two tensors."""
    table = tabulate(call, operands)
    if table is not None:
        return table
    left, right = operands
    sign = _SIGN[str(call.op.name)]
    biased = _add_bias_codes(left, right, sign)
    if biased is not None:
        return biased
    constants = [_constant(value) for value in operands]
    if constants[1] is not None:
        return _add_constant(emitter, call, left, sign * constants[1])
    if constants[0] is not None:
        negated = right if sign == 1 else _multiply_constant(emitter, call, right, np.asarray(-1.0))
        return None if negated is None else _add_constant(emitter, call, negated, constants[0])
    return _add_tensors(emitter, call, left, right, sign)


def _add_tensors(
    emitter: Emitter, call: relax.Call, left: Value, right: Value, sign: int
) -> Value | None:
    if isinstance(left, Accumulator) and isinstance(right, Codes) and _same_shape(call, left):
        return add_codes(emitter, left, right, sign)
    if isinstance(left, Codes) and isinstance(right, Accumulator) and _same_shape(call, right):
        if sign == -1:
            right = _negate(emitter, right)
        return add_codes(emitter, right, left, 1)
    if not (isinstance(left, Codes) and isinstance(right, Codes)):
        return None
    in_float32 = emitter.convention in (Convention.FLOAT32, Convention.NEAREST)
    if in_float32 or max(left.spec.bits, right.spec.bits) > 16:
        return None
    return emitter.common_scale(left, right, sign)


def realize_product(emitter: Emitter, call: relax.Call, operands: list[Value]) -> Value | None:
    """A * b: on tables of the same codes, with a constant, or of two tensors of codes."""
    table = tabulate(call, operands)
    if table is not None:
        return table
    left, right = operands
    for value, other in ((left, right), (right, left)):
        known = _constant(other)
        if known is not None:
            return _multiply_constant(emitter, call, value, known)
    if not (isinstance(left, Codes) and isinstance(right, Codes)):
        return None
    bound = left.largest * right.largest
    dtype = "int32" if bound < 2**31 else "int64"
    product = relax.op.multiply(emitter.centred(left, dtype), emitter.centred(right, dtype))
    scale = left.scale * right.scale
    return Accumulator(expr=emitter.emit(product), scale=scale, bound=np.asarray(bound))


def realize_clamp(emitter: Emitter, call: relax.Call, operands: list[Value]) -> Value | None:
    """relu, clip: pending on an accumulator, a table on codes."""
    value = operands[0]
    low, high = clamp_bounds(call)
    if isinstance(value, Accumulator):
        return value.clamp(low, high)
    table = tabulated(value)
    if table is not None:
        clamp = None
        if table.clamp is not None:
            first, last = (min(max(bound, low), high) for bound in table.clamp)
            clamp = (first, last)
        return replace(table, values=np.clip(table.values, low, high), clamp=clamp)
    return emitter.to_accumulator(value).clamp(low, high) if isinstance(value, Codes) else None


def realize_pointwise(_emitter: Emitter, call: relax.Call, operands: list[Value]) -> Value | None:
    """Any function of one element: a table."""
    return tabulate(call, operands)


def clamp_bounds(call: relax.Call) -> tuple[float, float]:
    """The range that a clamp narrows to.

    >>> clamp_bounds(relax.op.nn.relu(relax.Var("x", relax.TensorType((1,), "float32"))))
    (0.0, inf)
    """
    function = op_function(call)
    extremes = np.array([-np.inf, np.inf])
    low, high = function(extremes, *_scalars(call), call.attrs)
    return float(low), float(high)


def tabulate(call: relax.Call, operands: list[Value]) -> Table | None:
    """The call as a function of the codes of one tensor, or None if there is no such tensor."""
    tables = [tabulated(value) for value in operands]
    found = [table for table in tables if table is not None]
    if not found or any(not table.codes.expr.same_as(found[0].codes.expr) for table in found):
        return None
    if not _same_shape(call, found[0]):
        return None
    columns: list[Array] = []
    for value, table in zip(operands, tables, strict=True):
        known = _constant(value)
        if table is not None:
            columns.append(table.values)
        elif known is not None and known.size == 1:
            columns.append(known.astype("float32").reshape(()))
        else:
            return None
    with np.errstate(all="ignore"):
        values = op_function(call)(*columns, *_scalars(call), call.attrs)
    return Table(codes=found[0].codes, values=_finite(values))


def _finite(values: Array) -> Array:
    limit = float(np.finfo("float32").max)
    finite = np.nan_to_num(np.asarray(values, "float64"), posinf=limit, neginf=-limit)
    return np.asarray(finite, "float32")


def _scalars(call: relax.Call) -> list[float]:
    """Scalar (non-tensor) operands."""
    return [
        float(arg.value)
        for arg in call.args
        if hasattr(arg, "value") and constant_value(arg) is None
    ]


def _constant(value: Value) -> Array | None:
    """The real values of a constant."""
    if isinstance(value, Float):
        return constant_value(value.expr)
    codes = constant_value(value.expr) if isinstance(value, Codes) else None
    if codes is None or not isinstance(value, Codes):
        return None
    return np.asarray((codes.astype("int64") - value.zero_point) * value.scale)


def _add_bias_codes(acc: Value, bias: Value, sign: int) -> Accumulator | None:
    """A quantized bias on the accumulator's own scale is added as the integers that it is."""
    if not (isinstance(acc, Accumulator) and isinstance(bias, Codes)):
        return None
    codes = constant_value(bias.expr)
    if codes is None or acc.is_clamped or not np.allclose(bias.scale, acc.scale, rtol=SAME_SCALE):
        return None
    steps = sign * (codes.astype("int64") - bias.zero_point)
    return replace(acc, offset=acc.offset + steps, bound=acc.bound + np.abs(steps))


def _add_constant(emitter: Emitter, call: relax.Call, value: Value, known: Array) -> Value | None:
    if isinstance(value, Float) or not _same_shape(call, value):
        return None
    if isinstance(value, Table) and value.clamp is None:
        return None
    return emitter.add_constant(emitter.to_accumulator(value, FRACTION_BITS), known)


def _multiply_constant(
    emitter: Emitter, call: relax.Call, value: Value, known: Array
) -> Accumulator | Codes | None:
    if isinstance(value, Float) or not _same_shape(call, value):
        return None
    if isinstance(value, Table) and value.clamp is None:
        return None
    factor = known.astype("float64")
    if isinstance(value, Codes) and (factor > 0).all():
        axes = (1,) * (rank(value.expr) - factor.ndim) + factor.shape
        return replace(value, scale=value.scale * factor.reshape(axes))
    acc = emitter.to_accumulator(value, FRACTION_BITS)  # a constant may be added next
    sign = np.sign(factor)
    if (sign != 1).any():
        acc = emitter.add_offset(emitter.apply_clamp(acc))
        expr = relax.op.multiply(acc.expr, constant(sign.astype(acc.dtype)))
        acc = replace(acc, expr=emitter.emit(expr, "_signed"))
    magnitude = np.where(factor == 0, 1.0, np.abs(factor))
    return replace(
        acc,
        scale=acc.scale * magnitude,
        low=acc.low * magnitude,
        high=acc.high * magnitude,
        residue=acc.residue * factor,
    )


def _negate(emitter: Emitter, acc: Accumulator) -> Accumulator:
    acc = emitter.apply_clamp(acc)
    return replace(acc, expr=emitter.emit(relax.op.negative(acc.expr), "_negative"))


def _same_shape(call: relax.Call, value: Value) -> bool:
    """Whether the result has the shape of `value`: the other operand is broadcast to it."""
    expr = value.codes.expr if isinstance(value, Table) else value.expr
    return tensor_shape(expr) is not None and str(expr.ty.shape) == str(call.ty.shape)


ElementwiseRule = Callable[[Emitter, relax.Call, list[Value]], Value | None]
