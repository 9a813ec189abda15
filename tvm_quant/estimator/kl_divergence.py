"""Ranges that keep the distribution of the values: least relative entropy after quantization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tvm_quant.estimator.base import ActivationEstimator, Range
from tvm_quant.op import QuantSpec
from tvm_quant.statistics import TensorStatistics

Array = npt.NDArray[Any]

MOST_LEVELS = 1024
CANDIDATES = 256


@dataclass(frozen=True, kw_only=True)
class KLDivergence(ActivationEstimator):
    """The range for which KL(P || Q) is smallest.

    P are the nonzero values in `bins` equal bins, those beyond the range moved to its last bin. Q
    is what a grid can tell apart: the counts inside the range, each group of bins that shares a
    code spread evenly over the bins of the group that P uses. A range with no value in its last
    group is impossible for Q, so sparse and two-valued tensors keep their extremes; of equal
    divergences the widest range wins. Exact zeros take no part: every grid holds them.

    A symmetric grid is searched on the magnitudes. Of an asymmetric one the upper end is searched
    first, then the lower end of what remains. Grids of more than 1024 codes cover the extremes:
    they have codes enough for both.

    Source: Migacz, "8-bit inference with TensorRT", GPU Technology Conference 2017.
    """

    name: ClassVar[str] = "kl_divergence"
    summary: ClassVar[str] = "least relative entropy between before and after"

    #: Equal bins between the extremes, 2048 to 131072.
    bins: int = 4096

    def __post_init__(self) -> None:
        self._check("bins", 2048, 1 << 17)

    def range(self, stats: TensorStatistics, spec: QuantSpec) -> Range:
        """The range to cover; see `ActivationEstimator.range`."""
        if spec.symmetric:
            return self._symmetric(stats, spec)
        low, high = min(stats.minimum, 0.0), max(stats.maximum, 0.0)
        if low == high or spec.levels > MOST_LEVELS:
            return Range(low=low, high=high)
        counts = stats.dense(self.bins, low, high).counts
        levels = spec.levels
        zero = round(-low / (high - low) * self.bins)
        stop = _best_stop(counts, levels, shortest=zero) if high > 0 else self.bins
        start = 0
        if low < 0:
            start = stop - _best_stop(counts[:stop][::-1], levels, shortest=stop - zero)
        step = (high - low) / self.bins
        return Range.around_zero(low + start * step, low + stop * step)

    def _symmetric(self, stats: TensorStatistics, spec: QuantSpec) -> Range:
        magnitudes = stats.magnitudes() if spec.signed else stats
        high = max(magnitudes.maximum, 0.0)
        if not high or spec.levels > MOST_LEVELS:
            return Range(low=-high, high=high)
        counts = magnitudes.dense(self.bins, 0.0, high).counts
        stop = _best_stop(counts, spec.qmax + 1)
        reach = high * stop / self.bins
        return Range.around_zero(-reach if spec.signed else 0.0, reach)


def _best_stop(counts: Array, levels: int, *, shortest: int = 0) -> int:
    """Number of bins to keep, counted from the first, for the smallest divergence.

    All candidates are scored at once: with running sums of the counts, of the used bins and of
    count * log(count), a group costs two look-ups, whatever its width.
    """
    bins = len(counts)
    first = min(max(levels, shortest + 1), bins)
    stops = np.unique(np.linspace(first, bins, CANDIDATES).round().astype(np.int64))
    bounds = stops[:, None] * np.arange(levels + 1) // levels
    inside, used, weighted = map(_running_sum, (counts, counts > 0, _times_log(counts)))
    outside = inside[-1] - inside[stops]
    last = counts[stops - 1]
    group = np.diff(inside[bounds], axis=1)
    group_used = np.diff(used[bounds], axis=1)
    group_used[:, -1] += (last == 0) & (outside > 0)
    log_q = np.log(group / np.maximum(group_used, 1), out=np.zeros_like(group), where=group > 0)
    impossible = (group[:, -1] <= 0) & (outside > 0)
    group[:, -1] += outside
    entropy = weighted[stops] - _times_log(last) + _times_log(last + outside)
    total = max(inside[-1], 1e-300)
    with np.errstate(divide="ignore"):
        share = np.log(inside[stops] / total)
    divergence = (entropy - (group * log_q).sum(axis=1)) / total + share
    divergence = np.where(impossible, np.inf, divergence)
    return int(stops[np.flatnonzero(divergence <= divergence.min() + 1e-9)[-1]])


def _running_sum(values: Array) -> Array:
    return np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])


def _times_log(values: Array) -> Array:
    return values * np.log(values, out=np.zeros(np.shape(values)), where=values > 0)
