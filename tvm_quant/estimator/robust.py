"""The default: outlier samples are left out, then the expected error is minimised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tvm_quant.estimator.base import ActivationEstimator, Range
from tvm_quant.estimator.search import best_range
from tvm_quant.op import QuantSpec
from tvm_quant.statistics import Distribution, TensorStatistics, outlier_samples, outliers


@dataclass(frozen=True, kw_only=True)
class Robust(ActivationEstimator):
    """The range with the smallest L_p error on the samples that are no outliers.

    One sample that went wrong (a value of 1e4 among values near 1) stretches the range of every
    tensor after it. Such samples are found by their extremes, tensor by tensor, and everything
    beyond the extremes of the others is left out. What remains decides the range as in `norm`.
    """

    name: ClassVar[str] = "robust"
    summary: ClassVar[str] = "leaves out outlier samples, then smallest L_p error"

    #: Exponent of the error, 1 to 64.
    p: float = 2.0
    #: Distance of an outlier from the median, in interquartile ranges of log2 of the extremes.
    fence: float = outliers.FENCE
    #: The least such distance, in octaves.
    margin: float = outliers.MARGIN
    #: What happens in more than this share of the samples is no outlier, 0 to 0.5.
    share: float = outliers.SHARE

    def __post_init__(self) -> None:
        self._check("p", 1.0, 64.0)
        self._check("fence", 0.0, 1e6)
        self._check("margin", 0.0, 1e6)
        self._check("share", 0.0, 0.5)

    def range(self, stats: TensorStatistics, spec: QuantSpec) -> Range:
        """The range to cover; see `ActivationEstimator.range`."""
        far = outlier_samples(stats, fence=self.fence, margin=self.margin, share=self.share)
        kept = stats.without(far) if far.any() else stats
        low, high = best_range(kept, spec, self.p)
        return Range(low=low, high=high, dropped=tuple(np.flatnonzero(far).tolist()))

    def matched_range(self, spread: Distribution, spec: QuantSpec) -> tuple[float, float]:
        """The range to cover; see `ActivationEstimator.matched_range`."""
        return best_range(spread, spec, self.p)
