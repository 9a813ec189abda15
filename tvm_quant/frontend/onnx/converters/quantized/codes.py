"""Integer tensors of a model that was quantized elsewhere, and the real numbers they stand for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from onnx import TensorProto
from tvm import relax

from tvm_quant.frontend.onnx.converters.node import Node
from tvm_quant.frontend.onnx.converters.quantized.place import (
    Array,
    Grid,
    along,
    axis_of,
    checked_scale,
    is_call,
    place,
)
from tvm_quant.ir import constant, constant_value, tensor_shape
from tvm_quant.op import QuantSpec, is_simulated, spec_of

#: Wider codes than these are not told apart by a float32.
MOST_BITS = 16

_INTEGERS = {
    f"{sign}int{bits}": (bits, not sign) for sign in ("", "u") for bits in (2, 4, 8, 16, 32)
}
_TYPES = {
    getattr(TensorProto, name.upper()): name
    for name in _INTEGERS
    if hasattr(TensorProto, name.upper())
}


@dataclass(frozen=True, kw_only=True)
class Coded:
    """What a variable of integers was made of.

    Attributes:
        real: the quantized tensor in float.
        grid: of the codes; `spec.bits` are those of the variable's type.
        axis: of the quantize.
    """

    real: relax.Expr
    grid: Grid
    axis: int


def integer_spec(dtype: str, bits: int | None = None) -> QuantSpec:
    """All codes of an integer type.

    Raises:
        ValueError: not an integer type.
    """
    if dtype not in _INTEGERS:
        raise ValueError(
            f"codes of type {dtype} are not supported; expected int8, uint8 or similar"
        )
    width, signed = _INTEGERS[dtype]
    return QuantSpec(bits=bits or width, signed=signed)


def type_name(element_type: int) -> str:
    """The name of an ONNX element type."""
    return str(_TYPES.get(element_type, TensorProto.DataType.Name(element_type).lower()))


def grid_of(
    node: Node,
    data: relax.Expr,
    scale: int,
    zero_point: int,
    *,
    axis: int = 1,
    spec: QuantSpec | None = None,
) -> Grid:
    """The grid that two constant operands describe.

    Args:
        data: what is quantized, for its rank.
        scale, zero_point: index of the operands.
        axis: of a vector.
        spec: the codes; of the zero point's type if missing, uint8 without one.
    """
    steps = np.asarray(node.known(scale, "scale"), "float32")
    given = None
    if node.input(zero_point) is not None:
        given = node.known(zero_point, "zero point")
    spec = spec or integer_spec(
        "uint8" if given is None else str(given.dtype), node.width(zero_point)
    )
    zeros = np.zeros((), "int64") if given is None else given.astype("int64")
    steps, zeros = (_vector(array, data, axis) for array in (steps, zeros))
    if not ((spec.qmin <= zeros) & (zeros <= spec.qmax)).all():
        raise ValueError(f"its zero point lies outside of {spec.qmin} to {spec.qmax}")
    steps = checked_scale(steps)
    shape = np.broadcast_shapes(steps.shape, zeros.shape)
    steps, zeros = np.broadcast_to(steps, shape), np.broadcast_to(zeros, shape)
    return Grid(
        scale=steps,
        zero_point=zeros,
        spec=replace(spec, axis=axis_of(steps), symmetric=not zeros.any()),
    )


def _vector(array: Array, data: relax.Expr, axis: int) -> Array:
    """A scalar, or a vector along an axis of the data."""
    if array.size == 1:
        return array.reshape(())
    shape = tensor_shape(data)
    if shape is None:
        raise ValueError("the rank of its data is unknown")
    if array.ndim == len(shape) and sum(n > 1 for n in array.shape) == 1:
        return array
    if array.ndim != 1:
        raise ValueError(f"its scale has shape {array.shape}; expected a number or a vector")
    if not -len(shape) <= axis < len(shape) or shape[axis] not in (None, array.size):
        raise ValueError(
            f"its scale has {array.size} elements for axis {axis} of data of shape {shape}"
        )
    return along(array, axis, len(shape))


def coded(node: Node, value: relax.Expr | None) -> Coded | None:
    """What a tensor of codes was made of, if the model quantized it."""
    if not isinstance(value, relax.Var):
        return None
    call = node.builder.lookup_binding(value)
    if not is_call(call, "relax.quantize"):
        return None
    scale, zero_point = (constant_value(arg) for arg in call.args[1:3])
    if scale is None or zero_point is None:
        return None
    axis, rank = int(call.attrs.axis), len(tensor_shape(value) or ())
    scale, zero_point = (
        array.reshape(()) if array.size == 1 else along(np.ravel(array), axis, rank)
        for array in (scale, zero_point.astype("int64"))
    )
    spec = integer_spec(str(value.ty.dtype))
    grid = Grid(scale=scale, zero_point=zero_point, spec=spec)
    return Coded(real=call.args[0], grid=grid, axis=axis)


def as_codes(node: Node, real: relax.Expr, grid: Grid) -> relax.Expr:
    """The codes of a quantized tensor."""
    scale, zero_point, axis = _flat(grid)
    dtype = grid.spec.dtype
    return relax.op.quantize(
        real, constant(scale), constant(zero_point.astype(dtype)), axis=axis, out_dtype=dtype
    )


def from_codes(node: Node, codes: relax.Expr, grid: Grid) -> relax.Expr:
    """Codes whose origin is unknown as real numbers."""
    scale, zero_point, axis = _flat(grid)
    zeros = constant(zero_point.astype(str(codes.ty.dtype)))
    return node.emit(relax.op.dequantize(codes, constant(scale), zeros, axis=axis))


def _flat(grid: Grid) -> tuple[Array, Array, int]:
    """Scale and zero point as numbers, or vectors along an axis."""
    if grid.scale.size == 1:
        return grid.scale.reshape(()), grid.zero_point.reshape(()), -1
    axis = axis_of(grid.scale)
    assert axis is not None, "more than one scale"
    return grid.scale.reshape(-1), grid.zero_point.reshape(-1), axis


def real_of(node: Node, index: int, scale: int, zero_point: int, *, axis: int = 1) -> relax.Expr:
    """The real numbers of an operand of codes.

    Codes of a constant become a quantized constant; codes that the model made, what they were made
    of; all others, a dequantize. Args as for `grid_of`.
    """
    codes = node.required(index)
    spec = integer_spec(str(codes.ty.dtype), node.width(index))
    grid = grid_of(node, codes, scale, zero_point, axis=axis, spec=spec)
    known = constant_value(codes)
    if known is not None:
        return _constant(node, known, grid)
    origin = coded(node, codes)
    if origin is not None and origin.grid.same_values(grid):
        return origin.real
    return from_codes(node, codes, grid)


def _constant(node: Node, codes: Array, grid: Grid) -> relax.Expr:
    if grid.spec.bits > MOST_BITS:
        return from_codes(node, constant(codes), grid)
    return quantized_constant(node, codes, grid)


def quantized_constant(node: Node, codes: Array, grid: Grid) -> relax.Expr:
    """A constant that the quantizer behind it turns into just these codes, of the fewest bits."""
    steps = codes.astype("int64") - grid.zero_point
    real = steps.astype("float32") * grid.scale
    values = np.concatenate([codes.ravel().astype("int64"), grid.zero_point.ravel()])
    spec = replace(grid.spec, bits=fewest_bits(values, grid.spec.signed))
    return place(node, constant(np.asarray(real, "float32")), replace(grid, spec=spec))


def fewest_bits(codes: Array, signed: bool) -> int:
    """The smallest width, from 2 on, that holds all of the codes.

    >>> fewest_bits(np.array([-8, 7]), True), fewest_bits(np.array([3]), False)
    (4, 2)
    """
    low, high = int(codes.min(initial=0)), int(codes.max(initial=0))
    if signed:
        return max(2, high.bit_length() + 1, (-low - 1).bit_length() + 1 if low < 0 else 1)
    return max(2, high.bit_length())


def narrowed(node: Node, origin: Coded, low: int, high: int) -> relax.Expr | None:
    """Codes between two bounds, as a quantizer of just these; None if no quantizer made them."""
    call = node.builder.lookup_binding(origin.real)
    if call is None or not is_simulated(call):
        return None
    spec = spec_of(call)
    low, high = max(low, spec.qmin), min(high, spec.qmax)
    grid = replace(origin.grid, spec=_bounded(spec, low, high))
    return as_codes(node, place(node, call.args[0], grid), origin.grid)


def _bounded(spec: QuantSpec, low: int, high: int) -> QuantSpec:
    """The same with fewer codes, in the words of widths where there are."""
    for bits in range(2, spec.bits + 1):
        for narrow in (False, True) if spec.signed else (False,):
            fitting = replace(spec, bits=bits, narrow=narrow, low=None, high=None)
            if (fitting.qmin, fitting.qmax) == (low, high):
                return fitting
    return replace(spec, narrow=False, low=low, high=high)


def moved(
    node: Node, convert: Callable[[list[relax.Expr | None]], relax.Expr]
) -> relax.Expr | None:
    """A call that moves elements, on the real numbers behind the codes; None if there are none.

    Args:
        convert: the call, given its operands.
    """
    origins = [coded(node, value) for value in node.inputs]
    found = [origin for origin in origins if origin is not None]
    tensors = [v for v in node.inputs if isinstance(v, relax.Var) and _is_narrow(v)]
    if not found or len(found) != len(tensors):
        return None
    grid = found[0].grid
    if grid.scale.size != 1 or any(not o.grid.same_values(grid) for o in found):
        return None
    inputs = [
        value if origin is None else origin.real
        for value, origin in zip(node.inputs, origins, strict=True)
    ]
    result = convert(inputs)
    if isinstance(result, relax.Tuple | relax.ShapeExpr):
        return None
    real = node.emit(result)
    return as_codes(node, real, grid) if isinstance(real.ty, relax.TensorType) else None


def _is_narrow(value: relax.Var) -> bool:
    return isinstance(value.ty, relax.TensorType) and str(value.ty.dtype) in (
        "int8",
        "uint8",
        "int16",
        "uint16",
    )
