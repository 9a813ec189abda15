"""`qnn`: networks that another tool quantized, as the integers they mean.

    real = scale * (code - zero_point)

Sums are exact in int32. `requantize` is `tvm_quant.requantize` in Relay's rounding; operators
between grids (add, mul, sigmoid, ...) compute in float32 and round once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import relax

import tvm_quant
from tvm_quant.errors import UnsupportedError
from tvm_quant.ir import constant
from tvm_quant.op import RequantizeMode
from tvm_relay.op.base import dtype, emit, number, rank, relay_op, shape
from tvm_relay.op.conv import conv2d as float_conv2d
from tvm_relay.op.dense import along, batch_matmul, dense
from tvm_relay.op.layout import axis_of, per_axis, spatial

_ROUNDINGS = {
    "None": RequantizeMode.HALF_UP,
    "UPWARD": RequantizeMode.HALF_UP,
    "TONEAREST": RequantizeMode.HALF_AWAY,
}


@relay_op("qnn.quantize")
def quantize(
    data: relax.Expr,
    output_scale: relax.Expr,
    output_zero_point: relax.Expr,
    /,
    axis: int = -1,
    out_dtype: str = "int8",
) -> relax.Expr:
    scale, zero = (_broadcast(v, axis, rank(data)) for v in (output_scale, output_zero_point))
    steps = emit(relax.op.round(emit(relax.op.divide(data, scale))))
    codes = emit(relax.op.add(steps, emit(relax.op.astype(zero, "float32"))))
    low, high = _range(out_dtype)
    return relax.op.astype(emit(relax.op.clip(codes, float(low), float(high))), out_dtype)


@relay_op("qnn.dequantize")
def dequantize(
    data: relax.Expr,
    input_scale: relax.Expr,
    input_zero_point: relax.Expr,
    /,
    axis: int = -1,
    out_dtype: str = "float32",
) -> relax.Expr:
    scale = _broadcast(input_scale, axis, rank(data))
    shifted = _shifted(data, input_zero_point, axis)
    return relax.op.multiply(emit(relax.op.astype(shifted, out_dtype)), scale)


@relay_op("qnn.requantize")
def requantize(
    data: relax.Expr,
    input_scale: relax.Expr,
    input_zero_point: relax.Expr,
    output_scale: relax.Expr,
    output_zero_point: relax.Expr,
    /,
    axis: int = -1,
    rounding: str = "None",
    compute_dtype: str = "None",
    out_dtype: str = "int8",
) -> relax.Expr:
    """By a 31-bit multiplier and a shift, in 64 bits; scales are constants."""
    scales = [number(v, "qnn.requantize: a scale") for v in (input_scale, output_scale)]
    multiplier = scales[0].astype("float64") / scales[1].astype("float64")
    zero = number(output_zero_point, "qnn.requantize: the zero point")
    low, high = _range(out_dtype)
    return tvm_quant.requantize(
        _shifted(data, input_zero_point, axis),
        _array_along(multiplier, axis, rank(data)),
        np.asarray(zero, "int32"),
        dtype=out_dtype,
        qmin=max(low, -(2**24)),
        qmax=min(high, 2**24),
        mode=_ROUNDINGS[rounding],
    )


@relay_op(
    "qnn.conv2d",
    order=(
        "data",
        "kernel",
        "input_zero_point",
        "kernel_zero_point",
        "input_scale",
        "kernel_scale",
        "kernel_size",
        "channels",
        "strides",
        "padding",
        "dilation",
        "groups",
        "data_layout",
        "kernel_layout",
        "out_layout",
        "out_dtype",
    ),
)
def conv2d(
    data: relax.Expr,
    kernel: relax.Expr,
    input_zero_point: relax.Expr,
    kernel_zero_point: relax.Expr,
    input_scale: relax.Expr,
    kernel_scale: relax.Expr,
    /,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Any = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "int32",
) -> relax.Expr:
    """The border is padded with the zero point, which stands for the real 0."""
    zero = int(number(input_zero_point, "qnn.conv2d: the zero point of the data"))
    if zero:
        data, padding = _padded(data, zero, padding, data_layout), (0, 0)
    attrs = (strides, padding, dilation, groups, channels, kernel_size)
    layouts = (data_layout, kernel_layout, out_layout, out_dtype)

    def product(left: relax.Expr, right: relax.Expr) -> relax.Expr:
        return float_conv2d(left, right, *attrs, *layouts)

    axis = axis_of(kernel_layout, "O")
    return _product(product, data, zero, kernel, kernel_zero_point, axis)


@relay_op("qnn.dense")
def quantized_dense(
    data: relax.Expr,
    weight: relax.Expr,
    input_zero_point: relax.Expr,
    kernel_zero_point: relax.Expr,
    input_scale: relax.Expr,
    kernel_scale: relax.Expr,
    /,
    units: int | None = None,
    out_dtype: str = "int32",
) -> relax.Expr:
    zero = int(number(input_zero_point, "qnn.dense: the zero point of the data"))
    return _product(
        lambda a, b: dense(a, b, units, out_dtype), data, zero, weight, kernel_zero_point, 0
    )


@relay_op("qnn.batch_matmul")
def quantized_batch_matmul(
    x: relax.Expr,
    y: relax.Expr,
    x_zero_point: relax.Expr,
    y_zero_point: relax.Expr,
    x_scale: relax.Expr,
    y_scale: relax.Expr,
    /,
    out_dtype: str = "int32",
) -> relax.Expr:
    zero = int(number(x_zero_point, "qnn.batch_matmul: the zero point of x"))
    return _product(lambda a, b: batch_matmul(a, b, out_dtype), x, zero, y, y_zero_point, 0)


@relay_op("qnn.concatenate")
def concatenate(
    data: relax.Expr,
    input_scales: relax.Expr,
    input_zero_points: relax.Expr,
    output_scale: relax.Expr,
    output_zero_point: relax.Expr,
    /,
    axis: int,
) -> relax.Expr:
    parts = []
    for index, _ in enumerate(data.ty.fields):
        field = emit(relax.TupleGetItem(data, index))
        scale, zero = _field(input_scales, index), _field(input_zero_points, index)
        parts.append(
            emit(
                requantize(
                    field, scale, zero, output_scale, output_zero_point, out_dtype=dtype(field)
                )
            )
        )
    return relax.op.concat(parts, axis)


def _enter_pair(name: str, function: Any) -> None:
    @relay_op(
        f"qnn.{name}",
    )
    def build(
        lhs: relax.Expr,
        rhs: relax.Expr,
        lhs_scale: relax.Expr,
        lhs_zero_point: relax.Expr,
        rhs_scale: relax.Expr,
        rhs_zero_point: relax.Expr,
        output_scale: relax.Expr,
        output_zero_point: relax.Expr,
        /,
        lhs_axis: int = -1,
        rhs_axis: int = -1,
    ) -> relax.Expr:
        left = emit(dequantize(lhs, lhs_scale, lhs_zero_point, lhs_axis))
        right = emit(dequantize(rhs, rhs_scale, rhs_zero_point, rhs_axis))
        result = emit(function(left, right))
        return quantize(result, output_scale, output_zero_point, out_dtype=dtype(lhs))


_PAIRS = {"add": relax.op.add, "mul": relax.op.multiply, "subtract": relax.op.subtract}
for _name, _function in _PAIRS.items():
    _enter_pair(_name, _function)


def _enter_unary(name: str, function: Callable[[relax.Expr], relax.Expr]) -> None:
    @relay_op(f"qnn.{name}")
    def build(
        x: relax.Expr,
        scale: relax.Expr,
        zero_point: relax.Expr,
        output_scale: relax.Expr,
        output_zero_point: relax.Expr,
        /,
    ) -> relax.Expr:
        result = emit(function(emit(dequantize(x, scale, zero_point))))
        return quantize(result, output_scale, output_zero_point, out_dtype=dtype(x))


def _hard_swish(x: relax.Expr) -> relax.Expr:
    inner = emit(relax.op.add(x, relax.const(3.0, "float32")))
    gate = emit(relax.op.clip(inner, 0.0, 6.0))
    sixth = emit(relax.op.multiply(gate, relax.const(1 / 6, "float32")))
    return relax.op.multiply(x, sixth)


_UNARY: Mapping[str, Callable[[relax.Expr], relax.Expr]] = {
    "abs": relax.op.abs,
    "erf": relax.op.erf,
    "exp": relax.op.exp,
    "hardswish": _hard_swish,
    "log": relax.op.log,
    "rsqrt": relax.op.rsqrt,
    "sigmoid": relax.op.sigmoid,
    "sqrt": relax.op.sqrt,
    "tanh": relax.op.tanh,
}
for _name, _unary in _UNARY.items():
    _enter_unary(_name, _unary)


def _product(
    product: Callable[[relax.Expr, relax.Expr], relax.Expr],
    data: relax.Expr,
    zero: int,
    weight: relax.Expr,
    weight_zero: relax.Expr,
    axis: int,
) -> relax.Expr:
    """product(data - zero, weight - weight_zero); on 8-bit operands where both are 0."""
    if zero == 0 and not np.any(number(weight_zero, "qnn: the zero point of the weights")):
        return product(data, weight)
    return product(
        _shifted(data, relax.const(zero, "int32"), 0), _shifted(weight, weight_zero, axis)
    )


def _shifted(data: relax.Expr, zero_point: relax.Expr, axis: int) -> relax.Expr:
    """Data - zero_point in int32."""
    wide = emit(relax.op.astype(data, "int32")) if dtype(data) != "int32" else data
    zero = number(zero_point, "qnn: a zero point")
    if not np.any(zero):
        return wide
    array = _array_along(np.asarray(zero, "int32"), axis, rank(data))
    return emit(relax.op.subtract(wide, constant(array)))


def _padded(data: relax.Expr, zero: int, padding: Any, layout: str) -> relax.Expr:
    """Padded with the zero point, from two sizes or four: top, left, bottom, right."""
    sizes = per_axis(padding, 2)
    before, after = sizes[:2], sizes[-2:]
    width = [0] * (2 * rank(data))
    for axis, low, high in zip(spatial(layout), before, after, strict=True):
        width[2 * axis : 2 * axis + 2] = [low, high]
    return emit(relax.op.nn.pad(data, width, "constant", float(zero)))


def _broadcast(value: relax.Expr, axis: int, ndim: int) -> relax.Expr:
    return value if rank(value) == 0 or shape(value) == (1,) else along(value, axis, ndim)


def _array_along(array: Any, axis: int, ndim: int) -> Any:
    if array.size == 1:
        return array.reshape(())
    dims = [1] * ndim
    dims[axis] = array.size
    return array.reshape(dims)


def _field(values: relax.Expr, index: int) -> relax.Expr:
    known = relax.BlockBuilder.current().lookup_binding(values)
    literal = known if isinstance(values, relax.Var) and known is not None else values
    if not isinstance(literal, relax.Tuple):
        raise UnsupportedError("qnn.concatenate: scales and zero points are no literal tuples.")
    return literal.fields[index]


def _range(name: str) -> tuple[int, int]:
    info = np.iinfo(name)
    return int(info.min), int(info.max)
