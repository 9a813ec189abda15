"""Extremes and moments of each channel, kept in a few groups of samples.

Sample i belongs to group i % 16. When a sample turns out to be an outlier, leaving out its group
takes it out of the means at the cost of a sixteenth of the data, and memory does not depend on the
number of samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.statistics.spread import ChannelSpread, SpreadCollector
from tvm_quant.statistics.thinning import Thinning

Array = npt.NDArray[Any]

GROUPS = 16


@dataclass(frozen=True, kw_only=True)
class ChannelStatistics:
    """Extremes and moments of each of C channels.

    Attributes:
        axis: which axis of the tensor holds the channels.
        samples: number of samples, those left out as well.
        counts: values per channel in each group, int64, (16,).
        lows, highs: extremes, float32, (16, C); empty groups hold +inf and -inf.
        totals, squares_by_group: sums of the values and of their squares, float64, (16, C).
        spread: how the values of each channel are spread.
    """

    axis: int
    samples: int
    counts: Array
    lows: Array
    highs: Array
    totals: Array
    squares_by_group: Array
    spread: ChannelSpread

    @property
    def count(self) -> int:
        """Values per channel."""
        return int(self.counts.sum())

    @property
    def minimum(self) -> Array:
        """float32, (C,)."""
        return np.asarray(self.lows.min(axis=0))

    @property
    def maximum(self) -> Array:
        """float32, (C,)."""
        return np.asarray(self.highs.max(axis=0))

    @property
    def total(self) -> Array:
        """Sum of the values, float64, (C,)."""
        return np.asarray(self.totals.sum(axis=0))

    @property
    def squares(self) -> Array:
        """Sum of the squared values, float64, (C,)."""
        return np.asarray(self.squares_by_group.sum(axis=0))

    @property
    def mean(self) -> Array:
        """float64, (C,)."""
        return self.total / max(self.count, 1)

    @property
    def variance(self) -> Array:
        """Biased (divided by the count), float64, (C,)."""
        return np.asarray(np.maximum(self.squares / max(self.count, 1) - self.mean**2, 0.0))

    def merge(self, later: ChannelStatistics) -> ChannelStatistics:
        """Statistics of both data sets. Sums are added in this order: fix it for equal bits."""
        shift = self.samples % GROUPS
        moved = [np.roll(getattr(later, name), shift, axis=0) for name in _BY_GROUP]
        return ChannelStatistics(
            axis=self.axis,
            samples=self.samples + later.samples,
            counts=self.counts + moved[0],
            lows=np.minimum(self.lows, moved[1]),
            highs=np.maximum(self.highs, moved[2]),
            totals=self.totals + moved[3],
            squares_by_group=self.squares_by_group + moved[4],
            spread=self.spread.merge(later.spread),
        )

    def without(self, samples: Array) -> ChannelStatistics:
        """Without the groups of some samples; unchanged if nothing would be left.

        The spread stays: the energy of a sample that went wrong leaves it next to no weight.

        Args:
            samples: bool, (S,): which to leave out.
        """
        out = np.zeros(GROUPS, bool)
        out[np.flatnonzero(samples) % GROUPS] = True
        if not self.counts[~out].any():
            return self
        return ChannelStatistics(
            axis=self.axis,
            samples=self.samples,
            counts=np.where(out, 0, self.counts),
            lows=np.where(out[:, None], np.float32(np.inf), self.lows),
            highs=np.where(out[:, None], np.float32(-np.inf), self.highs),
            totals=np.where(out[:, None], 0.0, self.totals),
            squares_by_group=np.where(out[:, None], 0.0, self.squares_by_group),
            spread=self.spread,
        )


class ChannelCollector:
    """Gathers `ChannelStatistics` batch by batch."""

    def __init__(self, axis: int, channels: int, thinning: Thinning):
        self.axis, self.channels = axis, channels
        self._samples = 0
        self._counts = np.zeros(GROUPS, np.int64)
        self._lows = np.full((GROUPS, channels), np.inf, np.float32)
        self._highs = np.full((GROUPS, channels), -np.inf, np.float32)
        self._totals = np.zeros((GROUPS, channels))
        self._squares = np.zeros((GROUPS, channels))
        self._spread = SpreadCollector(channels, thinning.spread)

    def add(self, view: Array, low: Array, high: Array, *, samples: int) -> None:
        """Add a batch.

        Args:
            view: float32, (N, before, C, after); N is `samples`, or 1 if there is no batch axis.
            low, high: its extremes, float32, (N, C).
        """
        wide = view.astype(np.float64)
        totals = wide.sum(axis=3).sum(axis=1)
        squares = np.einsum("nbca,nbca->nc", wide, wide)
        for index in range(len(view)):
            group = (self._samples + index) % GROUPS
            self._counts[group] += view[index].size // self.channels
            np.minimum(self._lows[group], low[index], out=self._lows[group])
            np.maximum(self._highs[group], high[index], out=self._highs[group])
            self._totals[group] += totals[index]
            self._squares[group] += squares[index]
        self._spread.add(view, squares.sum(axis=1))
        self._samples += samples

    def statistics(self) -> ChannelStatistics:
        """What has been gathered so far."""
        return ChannelStatistics(
            axis=self.axis,
            samples=self._samples,
            counts=self._counts.copy(),
            lows=self._lows.copy(),
            highs=self._highs.copy(),
            totals=self._totals.copy(),
            squares_by_group=self._squares.copy(),
            spread=self._spread.spread(),
        )


_BY_GROUP = ("counts", "lows", "highs", "totals", "squares_by_group")
