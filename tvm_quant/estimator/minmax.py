"""Extremes: of the data, and of a constant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tvm_quant.estimator.base import ActivationEstimator, Range, WeightEstimator, row_extremes
from tvm_quant.op import QuantSpec
from tvm_quant.statistics import TensorStatistics

Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class MinMax(ActivationEstimator):
    """From the smallest to the largest value seen: nothing is clipped, outliers cost resolution."""

    name: ClassVar[str] = "minmax"
    summary: ClassVar[str] = "smallest to largest value"
    needs_counts: ClassVar[bool] = False

    def range(self, stats: TensorStatistics, spec: QuantSpec) -> Range:
        """The range to cover; see `ActivationEstimator.range`."""
        return Range.around_zero(stats.minimum, stats.maximum)


@dataclass(frozen=True, kw_only=True)
class MovingAverage(ActivationEstimator):
    """Extremes of the samples, averaged with weights that fade by `momentum` per sample.

    The first sample counts as if it had been seen forever; the last counts 1 - momentum.

    Source: Jacob et al., CVPR 2018, arXiv:1712.05877, section 3.1.
    """

    name: ClassVar[str] = "moving_average"
    summary: ClassVar[str] = "fading average of each sample's extremes"
    needs_counts: ClassVar[bool] = False

    #: In [0, 1); 0 keeps the last sample alone.
    momentum: float = 0.9

    def __post_init__(self) -> None:
        self._check("momentum", 0.0, 0.999999)

    def range(self, stats: TensorStatistics, spec: QuantSpec) -> Range:
        """The range to cover; see `ActivationEstimator.range`."""
        fading = self.momentum ** np.arange(stats.samples - 1, -1, -1.0)
        fading[1:] *= 1.0 - self.momentum
        return Range.around_zero(float(fading @ stats.sample_min), float(fading @ stats.sample_max))


@dataclass(frozen=True, kw_only=True)
class AbsMax(WeightEstimator):
    """The largest magnitude maps to the last code: no weight is clipped."""

    name: ClassVar[str] = "max"
    summary: ClassVar[str] = "largest magnitude"

    def weight_range(self, rows: Array, spec: QuantSpec) -> tuple[Array, Array]:
        """The range of each row; see `WeightEstimator.weight_range`."""
        return row_extremes(rows)
