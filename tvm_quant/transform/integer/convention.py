"""`CONVENTIONS`: how sums are scaled to codes where a model says which tool's integers it wants.

A row is the mode of the requantize and the float arithmetic of its multiplier, which is part of
what a tool computes: XNNPACK and ONNX Runtime divide float32 products, TFLite's own kernels use
float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tvm_quant.op import Convention, RequantizeMode, fixed_point_multiplier
from tvm_quant.transform.integer.value import Array, Codes


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """One convention.

    Attributes:
        mode: of the requantize.
        multiplier: from the scales of accumulator and result; both are float64 and, where they come
            from one product of two float32, exact.
        recode: from the codes of one tensor to those of a grid of the same type: an array for all
            codes that it has. None is as real numbers become codes.
    """

    mode: RequantizeMode
    multiplier: Callable[[Array, Array], Array]
    recode: Callable[[Codes, Codes], Array] | None = None


def _in_float64(accumulator: Array, result: Array) -> Array:
    return np.asarray(accumulator / result)


def _in_float32(accumulator: Array, result: Array) -> Array:
    """The product of two float32 is exact in float64, so that this rounds as float32 would."""
    ratio = accumulator.astype("float32") / result.astype("float32")
    return np.asarray(ratio, "float64")


def _of_float32_product(accumulator: Array, result: Array) -> Array:
    return np.asarray(accumulator.astype("float32").astype("float64") / result)


def _in_15_bits(accumulator: Array, result: Array) -> Array:
    """The multiplier rounded as TFLite does where the sum is of 64 bits."""
    mantissa, shift = fixed_point_multiplier(accumulator / result)
    short = np.minimum((mantissa.astype("int64") + (1 << 15)) >> 16, 0x7FFF)
    return np.asarray(short * 2.0 ** (shift - 15))


def _by_eight_bits(codes: Codes, wanted: Codes) -> Array:
    """XNNPACK: a multiplier of 8 bits below the point, ties up."""
    steps = np.arange(codes.spec.qmin, codes.spec.qmax + 1) - codes.zero_point
    factor = np.round(np.float32(256) * np.float32(codes.scale) / np.float32(wanted.scale))
    scaled = ((steps * int(factor) + 128) >> 8) + wanted.zero_point
    return np.asarray(np.clip(scaled, wanted.spec.qmin, wanted.spec.qmax), wanted.spec.dtype)


CONVENTIONS: dict[Convention, Scaling] = {
    Convention.FLOAT32: Scaling(mode=RequantizeMode.FLOAT, multiplier=_in_float32),
    Convention.ONNXRUNTIME: Scaling(mode=RequantizeMode.FLOAT, multiplier=_in_float32),
    Convention.DOUBLE_ROUNDING: Scaling(mode=RequantizeMode.FIXED_POINT, multiplier=_in_float64),
    Convention.RUY: Scaling(mode=RequantizeMode.RUY, multiplier=_in_float64),
    Convention.DOUBLE_ROUNDING_SHORT: Scaling(
        mode=RequantizeMode.FIXED_POINT, multiplier=_of_float32_product
    ),
    Convention.RUY_SHORT: Scaling(mode=RequantizeMode.RUY, multiplier=_of_float32_product),
    Convention.HALF_UP: Scaling(mode=RequantizeMode.HALF_UP, multiplier=_of_float32_product),
    Convention.HALF_AWAY: Scaling(mode=RequantizeMode.HALF_AWAY, multiplier=_in_float64),
    Convention.XNNPACK: Scaling(
        mode=RequantizeMode.FLOAT, multiplier=_in_float32, recode=_by_eight_bits
    ),
    Convention.INT16: Scaling(mode=RequantizeMode.HALF_UP, multiplier=_in_15_bits),
}
