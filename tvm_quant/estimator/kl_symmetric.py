"""The thresholds of MXNet and of Relay: least relative entropy over windows around zero."""

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

SMOOTHING = 1e-4
"""The count that Q has where it has none and P has some."""


@dataclass(frozen=True, kw_only=True)
class KLSymmetric(ActivationEstimator):
    """The window [-T, T] for which KL(P || Q) is smallest, as MXNet and Relay chose it.

    P are the values, zeros included, in equal bins over both signs; those outside the window are
    moved to its edge bins. Q are the counts inside, but those of the lowest bin, in as many
    groups of equally many bins as the grid has codes, each spread evenly over the bins that it
    uses. What the division leaves over goes to the highest group, so a window of a few bins less
    than a multiple of the codes is seldom the best. Of equal divergences the smallest window wins.

    Two narrow peaks, or mostly zeros, make the divergence smallest where most values are clipped.
    So at most `clipped` of the nonzero values may lie outside, which the originals do not ask.

    The range is what the data reaches within +-T. On a grid that is not symmetric, groups are as
    wide as on its wider side. Grids of more than 1024 codes cover the extremes. Counts of bins come
    from the histogram, in whole numbers: a tail of single values stays one.

    Source: operator `_contrib_calibrate_entropy` of Apache MXNet 1.9, which TVM up to 0.19 had as
    `FindScaleByKLMinimization`.

    >>> values = np.float32(np.random.RandomState(0).randn(100, 1000))
    >>> stats = TensorStatistics.of(values, samples=100)
    >>> round(KLSymmetric().range(stats, QuantSpec(narrow=True)).high, 3)  # of 4.852
    4.014
    """

    name: ClassVar[str] = "kl_symmetric"
    summary: ClassVar[str] = "least relative entropy of windows around 0, as MXNet and Relay"

    #: Equal bins on either side of the one around zero, 1024 to 65536.
    bins: int = 4000
    #: Largest share of nonzero values outside the window, 0 to 1.
    clipped: float = 0.001

    def __post_init__(self) -> None:
        self._check("bins", 1024, 1 << 16)
        self._check("clipped", 0.0, 1.0)

    def range(self, stats: TensorStatistics, spec: QuantSpec) -> Range:
        """The range to cover; see `ActivationEstimator.range`."""
        reached = extremes(stats, spec)
        low, high = reached.low, reached.high
        reach = max(-low, high)
        if not (reach and stats.histogram.nonzeros) or spec.levels > MOST_LEVELS:
            return reached
        bins = 2 * self.bins + 1
        counts = _whole(stats.dense(bins, -reach, reach).counts)
        counts[self.bins] += stats.histogram.zeros
        allowed = self.clipped * stats.histogram.nonzeros
        half = _best_half(counts, 2 * codes(low, high, spec) - 1, allowed)
        threshold = reach * (2 * half + 1) / bins
        return within(reached, threshold)


def _whole(counts: Array) -> Array:
    """Counts that were split between bins, in whole numbers with the same running sums."""
    return np.diff(np.rint(running_sum(counts)))


def _best_half(counts: Array, levels: int, allowed: float = np.inf) -> int:
    """Bins to keep on either side of the middle one, for the smallest divergence.

    Args:
        counts: float64 whole numbers, (2 B + 1,).
        levels: groups of Q, odd.
        allowed: most values outside the window.
    """
    middle = len(counts) // 2
    halves = np.arange(min(levels // 2, middle), middle + 1)
    below = running_sum(counts)
    outside = below[-1] - (below[middle + halves + 1] - below[middle - halves])
    halves = halves[outside <= allowed]
    return int(halves[np.argmin(_divergences(counts, levels, halves))])


def _divergences(counts: Array, levels: int, halves: Array) -> Array:
    """KL(P || Q) of windows around the middle: float64, (W,).

    With running sums of the counts, of the used bins and of count * log(count), a group costs two
    look-ups, whatever its width.
    """
    start, stop = len(counts) // 2 - halves, len(counts) // 2 + halves + 1
    bounds = start[:, None] + (stop - start)[:, None] // levels * np.arange(levels + 1)
    bounds[:, 0], bounds[:, -1] = start + 1, stop
    below, used, weighted = map(running_sum, (counts, counts > 0, times_log(counts)))
    left, right = below[start + 1], below[-1] - below[stop]
    group = np.diff(below[bounds], axis=1)
    group_used = np.diff(used[bounds], axis=1)
    q = group / np.maximum(group_used, 1)
    last = counts[stop - 1]
    group_used[:, 0] += left > 0
    group_used[:, -1] += (last == 0) & (right > 0)
    total_q = (q * group_used).sum(axis=1)
    group[:, 0] += left
    group[:, -1] += right
    entropy = weighted[stop - 1] - weighted[start + 1] + times_log(left) + times_log(last + right)
    cross = (group * np.log(np.maximum(q, SMOOTHING))).sum(axis=1)
    with np.errstate(divide="ignore"):
        share = np.log(total_q / below[-1])
    return np.where(total_q > 0, (entropy - cross) / below[-1] + share, np.inf)
