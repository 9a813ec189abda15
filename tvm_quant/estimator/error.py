"""The error a grid makes on a tensor, expected from the tensor's histogram.

    error(grid) = sum over the values x of |x - grid(x)|**p

Measured in steps of the grid, the error of a value depends only on its place: between two points of
the grid it is the distance to the nearer one, beyond the last point the distance to that. So the
line is cut into zones once and for all, each with its mean error, and the error of a grid is the
number of values in each zone times that. Within a bin and within a zone values are taken as evenly
spread. Exact zeros make no error: they are in no zone.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tvm_quant.estimator.affine import grid_ends
from tvm_quant.op import QuantSpec
from tvm_quant.statistics import interpolate_counts

Array = npt.NDArray[Any]

ZONES = 1024  # between the ends of the grid; at least 4 in each step
MANY_STEPS = 1 << 12  # grids finer than the bins: rounding errors are evenly spread
FARTHEST = 26  # log2 of the largest distance beyond an end, in steps


class Spread(Protocol):
    """Where the values of a tensor lie: `TensorStatistics` or `Distribution`."""

    @property
    def minimum(self) -> float:
        """Smallest value of interest."""

    @property
    def maximum(self) -> float:
        """Largest value of interest."""

    def cumulative(self) -> tuple[Array, Array]:
        """(edges, values below each), float64, (B + 1,)."""


class ErrorModel:
    """Expected L_p error of a tensor on any grid.

    >>> from tvm_quant.statistics import TensorStatistics
    >>> ramp = TensorStatistics.of(np.linspace(0, 255, 60_000, dtype=np.float32))
    >>> u8 = QuantSpec(signed=False, symmetric=False)
    >>> model = ErrorModel(ramp, p=2.0)
    >>> float(model.error(np.float32([1.0]), np.int32([0]), u8)[0].round(-1))  # 6e4 / 12
    5000.0
    """

    def __init__(self, stats: Spread, p: float):
        self.p = p
        self._edges, self._cumulative = stats.cumulative()

    def error(self, scale: Array, zero_point: Array, spec: QuantSpec) -> Array:
        """Sum of |x - grid(x)|**p for each of K grids.

        Args:
            scale, zero_point: (K,).
            spec: the grid.

        Returns:
            float64, (K,).
        """
        bottom, _ = grid_ends(scale, zero_point, spec)
        step = np.asarray(scale, np.float64)
        cuts, errors = _zones(spec.levels - 1, self.p)
        edges = bottom[:, None] + step[:, None] * cuts
        values = np.diff(interpolate_counts(self._edges, self._cumulative, edges), axis=1)
        return np.asarray(values @ errors * step**self.p)


@lru_cache(maxsize=64)
def _zones(steps: int, p: float) -> tuple[Array, Array]:
    """Cuts between the zones, in steps from the lowest point, and the mean error of each zone."""
    parts = max(ZONES // steps, 4) if steps < MANY_STEPS else 0
    within = np.linspace(0.0, 1.0, parts + 1) if parts else np.array([0.0, 1.0])
    rounding = [_rounding_error(*pair, p) for pair in pairwise(within)]
    inside = np.linspace(0.0, steps, steps * parts + 1) if parts else np.array([0.0, steps])
    beyond = np.concatenate([[0.0], 2.0 ** np.arange(-3, FARTHEST, 0.125)])
    clipping = np.array([_mean_power(*pair, p) for pair in pairwise(beyond)])
    cuts = np.concatenate([-beyond[:0:-1], inside, steps + beyond[1:]])
    errors = np.concatenate(
        [clipping[::-1], np.tile(rounding, max(steps * bool(parts), 1)), clipping]
    )
    return cuts, errors


def _rounding_error(start: float, stop: float, p: float) -> float:
    """Mean of |distance to the nearer end|**p over a part of the step [0, 1]."""
    if start < 0.5 < stop:
        halves = (
            _mean_power(start, 0.5, p) * (0.5 - start),
            _mean_power(1 - stop, 0.5, p) * (stop - 0.5),
        )
        return sum(halves) / (stop - start)
    nearest = sorted((min(start, 1 - start), min(stop, 1 - stop)))
    return _mean_power(nearest[0], nearest[1], p)


def _mean_power(low: float, high: float, p: float) -> float:
    """Mean of x**p over [low, high]."""
    return float((high ** (p + 1) - low ** (p + 1)) / ((p + 1) * (high - low)))
