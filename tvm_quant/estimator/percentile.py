"""Ranges that leave out a fixed share of the values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tvm_quant.estimator.base import ActivationEstimator, Range, WeightEstimator
from tvm_quant.op import QuantSpec
from tvm_quant.statistics import TensorStatistics

Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Percentile(ActivationEstimator, WeightEstimator):
    """At most a share 1 - percentile / 100 of the values is clipped at each end.

    On a symmetric grid the share is taken of the magnitudes. Values of one histogram bin count as
    spread evenly over it, so the end is interpolated inside the bin and off by at most 2**-10 of
    itself; of few values (share times count below 1) it is the extreme. Weights use
    `numpy.percentile` with linear interpolation on each channel.
    """

    name: ClassVar[str] = "percentile"
    summary: ClassVar[str] = "leaves out a fixed share of the values at each end"

    #: In percent, 50 to 100.
    percentile: float = 99.999

    def __post_init__(self) -> None:
        self._check("percentile", 50.0, 100.0)

    def range(self, stats: TensorStatistics, spec: QuantSpec) -> Range:
        """The range to cover; see `ActivationEstimator.range`."""
        if spec.symmetric:
            reach = self._upper(stats.magnitudes() if spec.signed else stats)
            return Range.around_zero(-reach, reach)
        return Range.around_zero(self._lower(stats), self._upper(stats))

    def weight_range(self, rows: Array, spec: QuantSpec) -> tuple[Array, Array]:
        """The range of each row; see `WeightEstimator.weight_range`."""
        if spec.symmetric:
            reach = np.percentile(np.abs(rows), self.percentile, axis=1)
            return -reach, reach
        low, high = np.percentile(rows, [100 - self.percentile, self.percentile], axis=1)
        return np.minimum(low, 0.0), np.maximum(high, 0.0)

    def _upper(self, stats: TensorStatistics) -> float:
        edges, below = stats.cumulative()
        outside = self._outside(stats)
        if outside < 1.0:
            return stats.maximum
        return float(np.interp(below[-1] - outside, below, edges)) if below[-1] > outside else 0.0

    def _lower(self, stats: TensorStatistics) -> float:
        edges, below = stats.cumulative()
        outside = self._outside(stats)
        if outside < 1.0:
            return stats.minimum
        return float(np.interp(outside, below, edges)) if below[-1] > outside else 0.0

    def _outside(self, stats: TensorStatistics) -> float:
        return (1.0 - self.percentile / 100.0) * stats.count
