"""Operators of one element, or of one element of each of two tensors."""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import relax

from tvm_quant.ir import constant, constant_value
from tvm_relay.op.base import dtype, emit, relay_op, scalar

Unary = Callable[[relax.Expr], relax.Expr]

_UNARY: dict[str, Unary] = {
    "abs": relax.op.abs,
    "acos": relax.op.acos,
    "acosh": relax.op.acosh,
    "asin": relax.op.asin,
    "asinh": relax.op.asinh,
    "atan": relax.op.atan,
    "atanh": relax.op.atanh,
    "bitwise_not": relax.op.bitwise_not,
    "ceil": relax.op.ceil,
    "copy": lambda x: x,
    "cos": relax.op.cos,
    "cosh": relax.op.cosh,
    "erf": relax.op.erf,
    "exp": relax.op.exp,
    "fast_erf": relax.op.erf,
    "fast_exp": relax.op.exp,
    "fast_tanh": relax.op.tanh,
    "floor": relax.op.floor,
    "isfinite": relax.op.isfinite,
    "isinf": relax.op.isinf,
    "isnan": relax.op.isnan,
    "log": relax.op.log,
    "log10": lambda x: relax.op.multiply(emit(relax.op.log(x)), scalar(1 / math.log(10), x)),
    "log2": lambda x: relax.op.multiply(emit(relax.op.log(x)), scalar(1 / math.log(2), x)),
    "logical_not": relax.op.logical_not,
    "negative": relax.op.negative,
    "nn.relu": relax.op.nn.relu,
    "ones_like": relax.op.ones_like,
    "round": relax.op.round,
    "rsqrt": relax.op.rsqrt,
    "sigmoid": relax.op.sigmoid,
    "sign": relax.op.sign,
    "sin": relax.op.sin,
    "sinh": relax.op.sinh,
    "sqrt": relax.op.sqrt,
    "tan": relax.op.tan,
    "tanh": relax.op.tanh,
    "trunc": relax.op.trunc,
    "zeros_like": relax.op.zeros_like,
}
_BINARY = (
    "add",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "divide",
    "equal",
    "floor_divide",
    "floor_mod",
    "greater",
    "greater_equal",
    "left_shift",
    "less",
    "less_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "not_equal",
    "power",
    "right_shift",
    "subtract",
)


def _enter_unary(name: str, function: Unary) -> None:
    @relay_op(name)
    def build(data: relax.Expr, /) -> relax.Expr:
        return function(data)


def _enter_binary(name: str) -> None:
    @relay_op(name)
    def build(lhs: relax.Expr, rhs: relax.Expr, /) -> relax.Expr:
        return getattr(relax.op, name)(lhs, rhs)


for _name, _function in _UNARY.items():
    _enter_unary(_name, _function)
for _name in _BINARY:
    _enter_binary(_name)


@relay_op("clip")
def clip(a: relax.Expr, /, a_min: float, a_max: float) -> relax.Expr:
    """Bounds in the units of the tensor; of integers they are whole numbers."""
    kind = float if dtype(a).startswith("float") else int
    return relax.op.clip(a, kind(a_min), kind(a_max))


@relay_op("cast")
def cast(data: relax.Expr, /, dtype: str) -> relax.Expr:
    array = constant_value(data)
    if array is not None:
        return constant(array.astype(dtype))
    return relax.op.astype(data, dtype)


@relay_op("cast_like")
def cast_like(data: relax.Expr, dtype_like: relax.Expr, /) -> relax.Expr:
    return relax.op.astype(data, dtype(dtype_like))


@relay_op("where")
def where(condition: relax.Expr, x: relax.Expr, y: relax.Expr, /) -> relax.Expr:
    if dtype(condition) != "bool":
        condition = emit(relax.op.not_equal(condition, scalar(0, condition)))
    return relax.op.where(condition, x, y)


@relay_op("fixed_point_multiply")
def fixed_point_multiply(data: relax.Expr, /, multiplier: int, shift: int) -> relax.Expr:
    """(data << left) * multiplier / 2**(31 + right), rounded half up, in 64 bits."""
    left, right = max(shift, 0), max(-shift, 0)
    wide = emit(relax.op.astype(data, "int64"))
    scaled = emit(relax.op.multiply(wide, relax.const(multiplier << left, "int64")))
    rounded = emit(relax.op.add(scaled, relax.const(1 << (30 + right), "int64")))
    shifted = emit(relax.op.right_shift(rounded, relax.const(31 + right, "int64")))
    return relax.op.astype(shifted, "int32")
