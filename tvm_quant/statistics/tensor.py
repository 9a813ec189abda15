"""What is known of one tensor: histogram, extremes of each sample, moments of each channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.errors import CalibrationError
from tvm_quant.statistics.channels import ChannelCollector, ChannelStatistics
from tvm_quant.statistics.histogram import FloatHistogram, HistogramCounter
from tvm_quant.statistics.thinning import Thinning

Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class LinearHistogram:
    """Counts in bins of equal width. Fractions arise where a bin of the source was split.

    Attributes:
        edges: float64, (B + 1,), increasing.
        counts: float64, (B,).
        zeros: number of exact zeros, which are in no bin: every grid holds them without error.
    """

    edges: Array
    counts: Array
    zeros: int


@dataclass(frozen=True, kw_only=True)
class TensorStatistics:
    """Statistics of one tensor over any number of samples.

    `merge` is exact and associative but for the channel sums, which are rounded in float64.
    Memory: a few hundred kB for the histogram, and 8 bytes a sample.

    Extremes are those of all values. Of large samples, the histogram and the moments of channels
    count evenly spaced pixels; see `Thinning`.

    Attributes:
        histogram: of the counted values.
        sample_min, sample_max: smallest and largest value of each sample, float32, (S,), in order.
        channels: per channel, where the channel axis is known and of fixed length.
    """

    histogram: FloatHistogram
    sample_min: Array
    sample_max: Array
    channels: ChannelStatistics | None = None

    @classmethod
    def of(cls, *batches: Array, samples: int = 1, axis: int | None = None) -> TensorStatistics:
        """Statistics of arrays of `samples` samples each.

        >>> stats = TensorStatistics.of(np.float32([[0, 1], [-3, 2]]), samples=2)
        >>> stats.minimum, stats.sample_max.tolist()
        (-3.0, [1.0, 2.0])
        """
        collector = TensorCollector(axis=axis)
        for batch in batches:
            collector.add(batch, samples=samples)
        return collector.statistics()

    @property
    def count(self) -> int:
        """Number of counted values."""
        return self.histogram.total

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.sample_min)

    @property
    def minimum(self) -> float:
        """Smallest value; 0 without samples."""
        return float(self.sample_min.min(initial=np.inf)) if self.samples else 0.0

    @property
    def maximum(self) -> float:
        """Largest value; 0 without samples."""
        return float(self.sample_max.max(initial=-np.inf)) if self.samples else 0.0

    @property
    def is_empty(self) -> bool:
        """Whether there was no value, in any sample."""
        return not self.samples or self.maximum < self.minimum

    @property
    def is_zero(self) -> bool:
        """Whether every value is 0."""
        return self.minimum == self.maximum == 0.0

    def merge(self, later: TensorStatistics) -> TensorStatistics:
        """Statistics of these samples followed by those of `later`."""
        return TensorStatistics(
            histogram=self.histogram.merge(later.histogram),
            sample_min=np.concatenate([self.sample_min, later.sample_min]),
            sample_max=np.concatenate([self.sample_max, later.sample_max]),
            channels=_merge_channels(self.channels, later.channels),
        )

    def magnitudes(self) -> TensorStatistics:
        """Statistics of the absolute values; without channels."""
        low, high = np.abs(self.sample_min), np.abs(self.sample_max)
        crosses = (self.sample_min < 0) & (self.sample_max > 0)
        return TensorStatistics(
            histogram=self.histogram.magnitudes(),
            sample_min=np.where(crosses, np.float32(0), np.minimum(low, high)),
            sample_max=np.maximum(low, high),
        )

    def without(self, samples: Array) -> TensorStatistics:
        """Statistics that leave out the extremes of some samples and all values beyond the others'.

        What those samples hold between the extremes of the others stays counted. Of the channels,
        the groups of these samples are left out.

        Args:
            samples: bool, (S,): which to leave out; not all.
        """
        low, high = self.sample_min[~samples], self.sample_max[~samples]
        return TensorStatistics(
            histogram=self.histogram.within(min(low.min(), 0.0), max(high.max(), 0.0)),
            sample_min=low,
            sample_max=high,
            channels=self.channels.without(samples) if self.channels else None,
        )

    def cumulative(self) -> tuple[Array, Array]:
        """(edges, cumulative counts) of the nonzero values within [minimum, maximum].

        Returns:
            edges: float64, (B + 1,), increasing.
            counts: float64, (B + 1,), from 0. Interpolating between the edges spreads the values of
                a bin evenly over it.
        """
        edges, counts = self.histogram.bins()
        edges = _strictly_within(edges, self.minimum, self.maximum)
        return edges, np.concatenate([[0.0], np.cumsum(counts, dtype=np.float64)])

    def dense(
        self, bins: int, low: float | None = None, high: float | None = None
    ) -> LinearHistogram:
        """The nonzero values within [low, high] in bins of equal width.

        Args:
            bins: how many, >= 1.
            low, high: default to the extremes of the data.
        """
        low = self.minimum if low is None else low
        high = self.maximum if high is None else high
        edges = np.linspace(low, high, bins + 1)
        counts = np.diff(interpolate_counts(*self.cumulative(), edges))
        return LinearHistogram(edges=edges, counts=counts, zeros=self.histogram.zeros)


_ALL = Thinning()


class TensorCollector:
    """Gathers `TensorStatistics` batch by batch.

    Args:
        axis: of the channels, or None.
        thinning: how much is counted; None: nothing, only extremes are gathered.
    """

    def __init__(self, *, axis: int | None = None, thinning: Thinning | None = _ALL):
        self.axis = axis
        self._thinning = thinning
        self._counter = HistogramCounter()
        self._low: list[Array] = []
        self._high: list[Array] = []
        self._channels: ChannelCollector | None = None
        self._has_channels = True

    def add(self, data: Array, *, samples: int = 1) -> None:
        """Add one batch.

        Args:
            data: float, any shape; its axis 0 counts samples if it is `samples` long, otherwise the
                extremes of the batch stand for each sample in it.

        Raises:
            CalibrationError: a value is NaN or infinite.
        """
        extremes = BatchExtremes.of(data, samples=samples, axis=self.axis)
        bad = extremes.non_finite()
        if bad is not None:
            raise CalibrationError(f"Sample {bad} of the batch holds NaN or Inf.")
        self.add_checked(extremes)

    def add_checked(self, batch: BatchExtremes) -> None:
        """Add a batch whose extremes are known to be finite."""
        self._low.append(batch.low)
        self._high.append(batch.high)
        if self._thinning is not None:
            counted = self._thinning.counted(batch.view)
            self._counter.add(counted)
            self._add_channels(batch, counted, self._thinning)

    def statistics(self) -> TensorStatistics:
        """What has been gathered so far."""
        nothing = np.zeros(0, np.float32)
        channels = self._channels if self._has_channels else None
        return TensorStatistics(
            histogram=self._counter.histogram(),
            sample_min=np.concatenate([nothing, *self._low]),
            sample_max=np.concatenate([nothing, *self._high]),
            channels=channels.statistics() if channels else None,
        )

    def _add_channels(self, batch: BatchExtremes, counted: Array, thinning: Thinning) -> None:
        if batch.axis is None or not batch.data.size:
            self._has_channels = False
            return
        channels = batch.data.shape[batch.axis]
        if self._channels is None:
            self._channels = ChannelCollector(batch.axis, channels, thinning)
        if self._channels.channels != channels:
            self._has_channels = False
        if self._has_channels:
            batch.add_to(self._channels, counted)


class BatchExtremes:
    """Extremes of a batch by sample and by channel: one reduction serves both.

    Attributes:
        data: float32, the batch.
        axis: of its channels, or None.
        low, high: extremes of each sample, float32, (S,). NaN and Inf show up here.
        view: the batch as (N, before, C, after).
    """

    def __init__(self, data: Array, view: Array, axis: int | None, samples: int):
        self.data, self.view, self.axis, self.samples = data, view, axis, samples
        # One axis at a time is faster than both at once.
        self._low = view.min(axis=3, initial=np.inf).min(axis=1, initial=np.inf)
        self._high = view.max(axis=3, initial=-np.inf).max(axis=1, initial=-np.inf)
        self.low = np.broadcast_to(self._low.min(axis=1, initial=np.inf), (samples,))
        self.high = np.broadcast_to(self._high.max(axis=1, initial=-np.inf), (samples,))

    @classmethod
    def of(cls, data: Array, *, samples: int, axis: int | None) -> BatchExtremes:
        """Reduce a batch of `samples` samples with its channels on `axis`, or on none."""
        data = np.ascontiguousarray(data, np.float32)
        rows = samples if data.ndim and data.shape[0] == samples else 1
        axis = axis if axis is not None and 0 < axis < data.ndim else None
        return cls(data, _as_sample_channel(data, rows, axis), axis, samples)

    def non_finite(self) -> int | None:
        """Index of the first sample that holds NaN or Inf."""
        bad = np.flatnonzero(~np.isfinite(self.low) | ~np.isfinite(self.high))
        return int(bad[0]) if bad.size and self.data.size else None

    def add_to(self, channels: ChannelCollector, counted: Array) -> None:
        """Add the batch, of which some is counted, to the statistics of its channels."""
        channels.add(counted, self._low, self._high, samples=self.samples)


def interpolate_counts(edges: Array, cumulative: Array, at: Array) -> Array:
    """Number of values below each of `at`, counting those equal to the last edge."""
    if not cumulative[-1]:
        return np.zeros(np.shape(at))
    below: Array = np.interp(at, edges, cumulative, left=0.0, right=cumulative[-1])
    return below


def _strictly_within(edges: Array, low: float, high: float) -> Array:
    """Cut the outer bins at the extremes.

    One that holds a single value keeps a hair of width, towards zero.
    """
    edges = np.clip(edges, low, high)
    if len(edges) > 1 and edges[-2] >= edges[-1] > 0:
        edges[-2] = np.nextafter(edges[-1], -np.inf)
    if len(edges) > 1 and edges[0] >= edges[1]:
        edges[0] = low
        edges[1] = np.nextafter(low, np.inf)
    return edges


def _as_sample_channel(data: Array, rows: int, axis: int | None) -> Array:
    """View as (samples, before, channels, after)."""
    if axis is None:
        return data.reshape(rows, 1, 1, data.size // rows)
    channels = data.shape[axis]
    after = int(np.prod(data.shape[axis + 1 :], dtype=np.int64))
    before = data.size // max(rows * channels * after, 1)
    return data.reshape(rows, before, channels, after)


def _merge_channels(
    first: ChannelStatistics | None, later: ChannelStatistics | None
) -> ChannelStatistics | None:
    if first is None or later is None or first.lows.shape != later.lows.shape:
        return None
    return first.merge(later)
