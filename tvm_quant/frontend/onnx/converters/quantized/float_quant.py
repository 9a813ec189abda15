"""QONNX FloatQuant: small floating-point grids, as float operators; of a constant, its value.

    k = 2**max(floor(log2|x / s|) - m, 1 - bias - m)          the distance of neighbours at x
    y = clamp(k round(x / s / k), -M, M) s                    M the largest number

A quantized weight is a constant; data is rounded at run time. No integers come of either.
"""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from tvm_quant.frontend.onnx.converters.node import Node
from tvm_quant.frontend.onnx.converters.quantized.place import (
    Array,
    aligned,
    checked_scale,
    known_value,
)
from tvm_quant.frontend.onnx.converters.quantized.quant import rounding_of
from tvm_quant.ir import constant
from tvm_quant.op import Rounding, round_numpy

R = relax.op
_TINY = float(np.finfo("float32").tiny)


def float_quant(node: Node) -> relax.Expr:
    """Inputs: data, scale, widths of exponent and mantissa, bias of the exponent, largest value."""
    scale = checked_scale(aligned(node.known(1, "scale"), node.data, "scale"))
    exponent, mantissa, bias, largest = (
        float(_number(node, index, what))
        for index, what in enumerate(
            ("exponent width", "mantissa width", "exponent bias", "largest value"), 2
        )
    )
    if not (1 <= exponent <= 8 and 0 <= mantissa <= 23):
        raise ValueError(
            f"its numbers have {exponent:g} bits of exponent and {mantissa:g} of mantissa; "
            "expected what a float32 holds, 1 to 8 and 0 to 23"
        )
    limit = min((2 - 2.0**-mantissa) * 2.0 ** (2**exponent - 1 - bias), largest)
    grid = _FloatGrid(mantissa, 1 - bias - mantissa, limit, _beyond(node, limit))
    rounding = rounding_of(node, "ROUND")
    known = known_value(node, node.data)
    if known is not None:
        return constant(np.asarray(grid.values(known / scale, rounding) * scale, "float32"))
    data = node.emit(R.divide(node.data, constant(scale)))
    return R.multiply(grid.emit(node, data, rounding), constant(scale))


class _FloatGrid:
    def __init__(self, mantissa: float, lowest: float, limit: float, beyond: float):
        self.mantissa, self.lowest, self.limit, self.beyond = mantissa, lowest, limit, beyond

    def values(self, x: Array, rounding: Rounding) -> Array:
        """By NumPy."""
        exponent = np.floor(np.log2(np.abs(x) + _TINY))
        step = 2.0 ** np.maximum(exponent - self.mantissa, self.lowest)
        rounded = step * round_numpy(x / step, rounding)
        if self.beyond != self.limit:
            rounded = np.where(np.abs(rounded) > self.limit, np.sign(x) * self.beyond, rounded)
            return np.asarray(rounded)
        return np.clip(rounded, -self.limit, self.limit)

    def emit(self, node: Node, x: relax.Expr, rounding: Rounding) -> relax.Expr:
        """By Relax operators."""
        size = node.emit(R.maximum(R.abs(x), _scalar(_TINY)))
        exponent = R.floor(R.multiply(R.log(size), _scalar(1 / math.log(2))))
        exponent = _settled(node, size, node.emit(exponent))
        lowest = _scalar(self.lowest)
        power = R.maximum(R.subtract(exponent, _scalar(self.mantissa)), lowest)
        step = node.emit(_power_of_two(node.emit(power)))
        rounded = R.multiply(step, _round(node, node.emit(R.divide(x, step)), rounding))
        rounded = node.emit(rounded)
        if self.beyond == self.limit:
            return node.emit(R.clip(rounded, -self.limit, self.limit))
        sign = R.sign(rounded)
        too_large = R.greater(R.abs(rounded), _scalar(self.limit))
        return node.emit(R.where(too_large, R.multiply(sign, _scalar(self.beyond)), rounded))


def _settled(node: Node, size: relax.Expr, exponent: relax.Var) -> relax.Expr:
    """The exponent where the logarithm was rounded to the other side of a whole number."""
    above = R.greater_equal(size, _power_of_two(R.add(exponent, _scalar(1.0))))
    below = R.less(size, _power_of_two(exponent))
    change = R.subtract(R.astype(above, "float32"), R.astype(below, "float32"))
    return node.emit(R.add(exponent, change))


def _power_of_two(exponent: relax.Expr) -> relax.Expr:
    return R.power(_scalar(2.0), exponent)


def _round(node: Node, x: relax.Expr, rounding: Rounding) -> relax.Expr:
    if rounding not in _ROUND:
        raise ValueError(f"rounding mode '{rounding.value}' is not supported for floating point")
    return _ROUND[rounding](x)


_ROUND = {
    Rounding.HALF_EVEN: R.round,
    Rounding.CEIL: R.ceil,
    Rounding.FLOOR: R.floor,
    Rounding.DOWN: R.trunc,
}


def _beyond(node: Node, limit: float) -> float:
    """What numbers beyond the largest become."""
    if node.attributes.get("saturation", 1):
        return limit
    if node.attributes.get("has_inf", 0):
        return math.inf
    return math.nan if node.attributes.get("has_nan", 0) else limit


def _number(node: Node, index: int, what: str) -> float:
    values = np.unique(node.known(index, what))
    if values.size != 1:
        raise ValueError(f"its {what} differs by element: {values.tolist()}; expected one")
    return float(values[0])


def _scalar(value: float) -> relax.Expr:
    return constant(np.float32(value))
