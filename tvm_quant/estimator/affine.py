"""From a range of real values to a scale and a zero point."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.op import QuantSpec

Array = npt.NDArray[Any]

SMALLEST_RANGE = 2.0**-100
"""Ranges below this count as zero: their scale would leave float32."""


def scale_zero_point(
    low: npt.ArrayLike, high: npt.ArrayLike, spec: QuantSpec, *, power_of_two: bool = False
) -> tuple[Array, Array]:
    """The grid of `spec` that covers [min(low, 0), max(high, 0)].

    Zero is always a point of the grid: padding, ReLU and sparse weights stay exact. Rounding the
    zero point may leave up to half a step of the range uncovered at one end.

    Args:
        low, high: ends of the range, any shapes that broadcast; for a symmetric grid the wider side
            counts, and for an unsigned symmetric grid only `high`.
        power_of_two: round the scale up to a power of two.

    Returns:
        scale: float32, > 0, broadcast shape; 1 where the range is zero.
        zero_point: int32, same shape, in [qmin, qmax].

    Source: Jacob et al., CVPR 2018, arXiv:1712.05877, section 2.1.

    >>> u8 = QuantSpec(signed=False, symmetric=False)
    >>> scale, zero_point = scale_zero_point(-1.0, 4.1, u8)
    >>> round(float(scale), 6), int(zero_point)
    (0.02, 50)
    """
    low = np.minimum(np.asarray(low, np.float64), 0.0)
    high = np.maximum(np.asarray(high, np.float64), 0.0)
    scale = np.asarray(
        _symmetric_scale(low, high, spec) if spec.symmetric else _span(low, high, spec)
    )
    if power_of_two:
        scale = ceil_power_of_two(scale)
    scale = np.where(scale * spec.levels < SMALLEST_RANGE, 1.0, scale).astype(np.float32)
    if spec.symmetric:
        return scale, np.zeros(scale.shape, np.int32)
    zero_point = np.rint(spec.qmin - low / scale.astype(np.float64))
    return scale, np.clip(zero_point, spec.qmin, spec.qmax).astype(np.int32)


def ceil_power_of_two(value: npt.ArrayLike) -> Array:
    """Smallest power of two that is not below `value`, exactly; 0 stays 0.

    >>> ceil_power_of_two([0.3, 0.5, 5.0, 0.0]).tolist()
    [0.5, 0.5, 8.0, 0.0]
    """
    mantissa, exponent = np.frexp(np.asarray(value, np.float64))
    power: Array = np.where(mantissa == 0, 0.0, np.ldexp(1.0, exponent - (mantissa == 0.5)))
    return power


def grid_ends(scale: Array, zero_point: Array, spec: QuantSpec) -> tuple[Array, Array]:
    """The lowest and the highest real value on a grid: float64, shape of `scale`."""
    step = np.asarray(scale, np.float64)
    return (spec.qmin - zero_point) * step, (spec.qmax - zero_point) * step


def _symmetric_scale(low: Array, high: Array, spec: QuantSpec) -> Array:
    scale = high / max(spec.qmax, 1)
    return np.maximum(scale, low / spec.qmin) if spec.signed else scale


def _span(low: Array, high: Array, spec: QuantSpec) -> Array:
    return (high - low) / (spec.qmax - spec.qmin)
