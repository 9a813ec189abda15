"""The error a grid makes on a tensor, expected from the tensor's histogram.

    error(grid) = sum over the values x of |x - grid(x)|**p

The values of a bin are taken as spread evenly over it. Within the reach of the grid the error
depends only on where between two points of the grid a value lies, so each step of the grid is cut
into a few parts, the values in the same part of any step are added up, and each part has a fixed
mean error. Beyond the reach the error is the distance to the last point. Exact zeros make none.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.estimator.affine import grid_ends
from tvm_quant.op import QuantSpec
from tvm_quant.statistics import TensorStatistics, interpolate_counts

Array = npt.NDArray[Any]

PARTS = 8  # of a step
MANY_LEVELS = 1 << 12  # grids finer than the bins: rounding errors are evenly spread
TAIL_BINS_PER_OCTAVE = 64


class ErrorModel:
    """Expected L_p error of a tensor on any grid.

    >>> ramp = TensorStatistics.of(np.linspace(0, 255, 100_000, dtype=np.float32))
    >>> u8 = QuantSpec(signed=False, symmetric=False)
    >>> model = ErrorModel(ramp, p=2.0)
    >>> float(model.error(np.float32([1.0]), np.int32([0]), u8)[0].round(-1))  # 1e5 / 12
    8330.0
    """

    def __init__(self, stats: TensorStatistics, p: float):
        self.p = p
        self._edges, self._cumulative = stats.cumulative()
        self._points, self._counts = stats.histogram.points(TAIL_BINS_PER_OCTAVE)
        self._points = np.clip(self._points, stats.minimum, stats.maximum)

    def error(self, scale: Array, zero_point: Array, spec: QuantSpec) -> Array:
        """Sum of |x - grid(x)|**p for each of K grids.

        Args:
            scale, zero_point: (K,).
            spec: the grid.

        Returns:
            float64, (K,).
        """
        bottom, top = grid_ends(scale, zero_point, spec)
        rounding = self._rounding(bottom, top, spec.levels - 1)
        return rounding + self._beyond(self._points, top) + self._beyond(-self._points, -bottom)

    def _rounding(self, bottom: Array, top: Array, steps: int) -> Array:
        step = (top - bottom) / steps
        parts = PARTS if steps < MANY_LEVELS else 0
        offsets = np.linspace(0.0, 1.0, steps * parts + 1 if parts else 2)
        edges = bottom[:, None] + (top - bottom)[:, None] * offsets
        inside = np.diff(interpolate_counts(self._edges, self._cumulative, edges), axis=1)
        if not parts:
            return np.asarray(inside[:, 0] * step**self.p * _mean_power(0.0, 0.5, self.p))
        folded = inside.reshape(len(step), steps, parts).sum(axis=1)
        return np.asarray(folded @ _part_errors(parts, self.p) * step**self.p)

    def _beyond(self, points: Array, end: Array) -> Array:
        used = points > end.min()
        distance = np.maximum(points[used] - end[:, None], 0.0)
        return np.asarray(distance**self.p @ self._counts[used])


def _part_errors(parts: int, p: float) -> Array:
    """Mean of |rounding error|**p over each of `parts` equal parts of a step of 1."""
    cuts = np.linspace(0.0, 1.0, parts + 1)
    distances = np.minimum(cuts, 1.0 - cuts)
    return np.array([_mean_power(min(pair), max(pair), p) for pair in pairwise(distances)])


def _mean_power(low: float, high: float, p: float) -> float:
    """Mean of x**p over [low, high]."""
    return float((high ** (p + 1) - low ** (p + 1)) / ((p + 1) * (high - low)))
