"""Where integers enter and leave a network: dequantize, quantize and casts of Relax itself.

A network that was quantized elsewhere may take and return codes, and keeps biases of 32 bits, which
no float32 holds. There stand `R.dequantize` and `R.quantize`, or the quantize of this package,
instead of a simulated quantizer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from tvm_quant.ir import constant_value, op_name
from tvm_quant.op import QuantSpec
from tvm_quant.transform.channel_vector import along
from tvm_quant.transform.integer.codes import is_plain_sum, to_codes
from tvm_quant.transform.integer.compare import realize_threshold
from tvm_quant.transform.integer.emitter import Emitter, rank
from tvm_quant.transform.integer.value import Accumulator, Array, Codes, Float, Value

_BITS = {f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 32)}


def has_constant_grid(call: relax.Call) -> bool:
    """Whether scale and zero point of the call are known, and its type is one of codes."""
    codes = call.args[0] if op_name(call) == "relax.dequantize" else call
    known = all(constant_value(arg) is not None for arg in call.args[1:])
    return known and str(codes.ty.dtype) in _BITS


def enter(emitter: Emitter, call: relax.Call, value: Value) -> Value:
    """Dequantize: the tensor is codes as it is."""
    scale, zero_point = _grid(call)
    expr = emitter.to_float(value)
    spec = _spec(str(expr.ty.dtype), zero_point)
    return Codes(expr=expr, scale=scale, zero_point=zero_point, spec=spec)


def leave(emitter: Emitter, call: relax.Call, value: Value) -> Value:
    """Quantize: the codes as a tensor of the network."""
    scale, zero_point = _grid(call)
    spec = _spec(str(call.ty.dtype), zero_point)
    wanted = Codes(expr=call, scale=scale, zero_point=zero_point, spec=spec)
    if isinstance(value, Codes) and value.same_grid(wanted):
        return Float(expr=value.expr)
    return Float(expr=to_codes(emitter, value, scale, zero_point, spec).expr)


def leave_grid(emitter: Emitter, call: relax.Call, value: Value) -> Value:
    """The quantize of this package: any grid, such as that of a simulated quantizer."""
    scale, zero_point = (constant_value(arg) for arg in call.args[1:])
    assert scale is not None and zero_point is not None, "has_constant_grid() asks"
    return Float(
        expr=to_codes(emitter, value, scale, zero_point, QuantSpec.from_attrs(call.attrs)).expr
    )


def whole(emitter: Emitter, call: relax.Call, value: Value) -> Value:
    """Cast to int32: sums of whole numbers as they are, which may be too large for a float32."""
    wanted = Codes(
        expr=call, scale=np.ones(()), zero_point=np.zeros((), "int64"), spec=QuantSpec(bits=32)
    )
    as_sums = str(call.ty.dtype) == wanted.spec.dtype
    if as_sums and isinstance(value, Accumulator) and is_plain_sum(value, wanted):
        return Float(expr=emitter.add_offset(value).expr)
    data = emitter.to_float(value)
    return Float(expr=emitter.emit(relax.op.astype(data, str(call.ty.dtype))))


def _grid(call: relax.Call) -> tuple[Array, Array]:
    arrays = [constant_value(arg) for arg in call.args[1:]]
    dimensions, axis = rank(call), int(call.attrs.axis)
    scale, zero_point = (
        np.reshape(array, ()) if np.size(array) == 1 else along(np.ravel(array), axis, dimensions)
        for array in arrays
        if array is not None
    )
    return scale.astype("float64"), zero_point.astype("int64")


def _spec(dtype: str, zero_point: Array) -> QuantSpec:
    signed = not dtype.startswith("u")
    return QuantSpec(bits=_BITS[dtype], signed=signed, symmetric=not zero_point.any())


BOUNDARIES: dict[str, Callable[[Emitter, relax.Call, Value], Value | None]] = {
    "relax.astype": whole,
    "relax.dequantize": enter,
    "relax.quantize": leave,
    "tvm_quant.quantize": leave_grid,
    "tvm_quant.threshold": realize_threshold,
}
