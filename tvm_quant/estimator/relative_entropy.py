"""What estimators that minimise a relative entropy share."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.estimator.base import Range
from tvm_quant.op import QuantSpec
from tvm_quant.statistics import TensorStatistics

Array = npt.NDArray[Any]

MOST_LEVELS = 1024
"""Grids of more codes than this tell all bins apart: they cover the extremes."""


def extremes(stats: TensorStatistics, spec: QuantSpec) -> Range:
    """What the data reaches on either side of zero, as far as the grid has codes there."""
    low = 0.0 if spec.symmetric and not spec.signed else min(stats.minimum, 0.0)
    return Range(low=low, high=max(stats.maximum, 0.0))


def within(reached: Range, threshold: float) -> Range:
    """The part of a range within +-threshold."""
    return Range(low=max(reached.low, -threshold), high=min(reached.high, threshold))


def codes(low: float, high: float, spec: QuantSpec) -> int:
    """How many codes of a grid over [low, high] fall to the wider side of zero.

    >>> codes(0.0, 4.0, QuantSpec(signed=False, symmetric=False)), codes(-4.0, 4.0, QuantSpec())
    (256, 128)
    """
    if spec.symmetric:
        return spec.qmax + 1
    return max(round(spec.levels * max(-low, high) / (high - low)), 2)


def running_sum(values: Array) -> Array:
    """Sums of the first 0, 1, 2, ... values, (B,): float64, (B + 1,)."""
    return np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])


def times_log(values: Array) -> Array:
    """Values times their logarithms; 0 at 0."""
    return values * np.log(values, out=np.zeros(np.shape(values)), where=values > 0)
