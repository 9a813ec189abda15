"""`CONVENTIONS`: how sums are scaled to codes where a model says which tool's integers it wants.

A row is the mode of the requantize and the float arithmetic of its multiplier, which is part of
what a tool computes: XNNPACK and ONNX Runtime divide float32 products, TFLite's own kernels use
float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tvm_quant.op import Convention, RequantizeMode
from tvm_quant.transform.integer.value import Array


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """One convention.

    Attributes:
        mode: of the requantize.
        multiplier: from the scales of accumulator and result; both are float64 and, where they come
            from one product of two float32, exact.
    """

    mode: RequantizeMode
    multiplier: Callable[[Array, Array], Array]


def _in_float64(accumulator: Array, result: Array) -> Array:
    return np.asarray(accumulator / result)


def _in_float32(accumulator: Array, result: Array) -> Array:
    """The product of two float32 is exact in float64, so that this rounds as float32 would."""
    ratio = accumulator.astype("float32") / result.astype("float32")
    return np.asarray(ratio, "float64")


def _of_float32_product(accumulator: Array, result: Array) -> Array:
    return np.asarray(accumulator.astype("float32").astype("float64") / result)


CONVENTIONS: dict[Convention, Scaling] = {
    Convention.FLOAT32: Scaling(mode=RequantizeMode.FLOAT, multiplier=_in_float32),
    Convention.DOUBLE_ROUNDING: Scaling(mode=RequantizeMode.FIXED_POINT, multiplier=_in_float64),
    Convention.RUY: Scaling(mode=RequantizeMode.RUY, multiplier=_in_float64),
    Convention.HALF_UP: Scaling(mode=RequantizeMode.HALF_UP, multiplier=_of_float32_product),
}
