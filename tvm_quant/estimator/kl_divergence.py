"""Ranges that keep the distribution of the values: least relative entropy after quantization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tvm_quant.estimator.base import ActivationEstimator, Range
from tvm_quant.estimator.relative_entropy import (
    MOST_LEVELS,
    codes,
    extremes,
    running_sum,
    times_log,
    within,
)
from tvm_quant.op import QuantSpec
from tvm_quant.statistics import TensorStatistics

Array = npt.NDArray[Any]

CANDIDATES = 256


@dataclass(frozen=True, kw_only=True)
class KLDivergence(ActivationEstimator):
    """The threshold on magnitudes for which KL(P || Q) is smallest.

    P are the nonzero magnitudes in `bins` equal bins, those beyond the threshold moved to its last
    bin. Q is what a grid can tell apart: the counts below the threshold, each group of bins that
    shares a code spread evenly over the bins of the group that P uses. A threshold with no value in
    its last group is impossible for Q, so sparse and two-valued tensors keep their extremes; of
    equal divergences the largest threshold wins. Exact zeros take no part: every grid holds them.

    Values in a few narrow peaks make the divergence smallest where most of them are clipped. So at
    most `clipped` of the values may lie beyond the threshold.

    The range is what the data reaches within +-threshold; an asymmetric grid is searched with as
    many groups as codes fall to the wider side. Grids of more than 1024 codes cover the extremes.

    Source: Migacz, "8-bit inference with TensorRT", GPU Technology Conference 2017.
    """

    name: ClassVar[str] = "kl_divergence"
    summary: ClassVar[str] = "least relative entropy between before and after"

    #: Equal bins between 0 and the largest magnitude, 2048 to 131072.
    bins: int = 4096
    #: Largest share of nonzero values beyond the threshold, 0 to 1.
    clipped: float = 0.001

    def __post_init__(self) -> None:
        self._check("bins", 2048, 1 << 17)
        self._check("clipped", 0.0, 1.0)

    def range(self, stats: TensorStatistics, spec: QuantSpec) -> Range:
        """The range to cover; see `ActivationEstimator.range`."""
        reached = extremes(stats, spec)
        low, high = reached.low, reached.high
        reach = max(-low, high)
        if not reach or spec.levels > MOST_LEVELS:
            return reached
        seen = stats.magnitudes() if low < 0 else stats
        counts = seen.dense(self.bins, 0.0, reach).counts
        beyond = counts.sum() - np.cumsum(counts)
        shortest = int(np.argmax(beyond <= self.clipped * counts.sum()))
        threshold = reach * _best_stop(counts, codes(low, high, spec), shortest) / self.bins
        return within(reached, threshold)


def _best_stop(counts: Array, levels: int, shortest: int = 0) -> int:
    """Number of bins to keep, counted from the first, for the smallest divergence.

    All candidates are scored at once: with running sums of the counts, of the used bins and of
    count * log(count), a group costs two look-ups, whatever its width.
    """
    bins = len(counts)
    first = min(max(levels, shortest + 1), bins)
    stops = np.unique(np.linspace(first, bins, CANDIDATES).round().astype(np.int64))
    bounds = stops[:, None] * np.arange(levels + 1) // levels
    inside, used, weighted = map(running_sum, (counts, counts > 0, times_log(counts)))
    outside = inside[-1] - inside[stops]
    last = counts[stops - 1]
    group = np.diff(inside[bounds], axis=1)
    group_used = np.diff(used[bounds], axis=1)
    group_used[:, -1] += (last == 0) & (outside > 0)
    log_q = np.log(group / np.maximum(group_used, 1), out=np.zeros_like(group), where=group > 0)
    impossible = (group[:, -1] <= 0) & (outside > 0)
    group[:, -1] += outside
    entropy = weighted[stops] - times_log(last) + times_log(last + outside)
    total = max(inside[-1], 1e-300)
    with np.errstate(divide="ignore"):
        share = np.log(inside[stops] / total)
    divergence = (entropy - (group * log_q).sum(axis=1)) / total + share
    divergence = np.where(impossible, np.inf, divergence)
    return int(stops[np.flatnonzero(divergence <= divergence.min() + 1e-9)[-1]])
