"""How the values of each channel are spread, every sample weighed by the inverse of its energy.

A network passes noise on about as it passes the signal on, so what an error does at the outputs
goes by its share of the sample it is in. Of a tensor that reaches 30 in one sample of ten and 2 in
the others, plain counts see the one. Weighed like this, the errors of a sample sum to at most its
energy, about 1: neither a loud nor a silent sample outweighs the rest. Weights are powers of two,
so that sums in float64 are exact, in any order, unless samples are 90 dB apart.

A bin is the bit pattern of a magnitude without its 20 lowest bits, so there are eight an octave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.statistics.thinning import thinned

Array = npt.NDArray[Any]

SHIFT = 20
BINS_PER_OCTAVE = 1 << (23 - SHIFT)
BINS = 20 * BINS_PER_OCTAVE  # below the largest magnitude; the first one holds all that is smaller
TOGETHER = 8  # samples that are counted at once


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """How much weight lies where.

    Attributes:
        minimum, maximum: the range of interest.
        edges: float64, (B + 1,), increasing.
        below: weight below each edge, float64, (B + 1,).
    """

    minimum: float
    maximum: float
    edges: Array
    below: Array

    def cumulative(self) -> tuple[Array, Array]:
        """(edges, weight below each)."""
        return self.edges, self.below


@dataclass(frozen=True, kw_only=True)
class ChannelSpread:
    """The weight of each magnitude in C channels.

    Attributes:
        start: bin of column 0.
        weights: float64, (C, 2, B): of positive and of negative values.
    """

    start: int
    weights: Array

    @classmethod
    def folded(cls, start: int, weights: Array) -> ChannelSpread:
        """The last `BINS` columns; the first one takes those before."""
        first = weights.shape[2] - BINS
        if first <= 0:
            return cls(start=start, weights=weights)
        kept = weights[:, :, first:].copy()
        kept[:, :, 0] += weights[:, :, :first].sum(axis=2)
        return cls(start=start + first, weights=kept)

    @property
    def stop(self) -> int:
        """Bin after the last column."""
        return self.start + int(self.weights.shape[2])

    @property
    def mean_weight(self) -> float:
        """Weight of a channel on the average, a power of two; 1 where nothing was counted."""
        mean = self.weights.sum() / max(len(self.weights), 1)
        return float(2.0 ** np.round(np.log2(mean))) if mean else 1.0

    def merge(self, later: ChannelSpread) -> ChannelSpread:
        """The spread of both data sets."""
        start, stop = _span([self, later])
        return ChannelSpread.folded(start, self.over(start, stop) + later.over(start, stop))

    def scaled(self, factors: Array, gains: Array, low: float, high: float) -> Distribution:
        """The spread of a tensor whose channels are multiplied by `factors`.

        Args:
            factors: > 0, (C,).
            gains: weight of each channel, >= 0, (C,).
            low, high: the range of interest of the products, low <= 0 <= high.
        """
        lowest, highest = np.log2([factors.min(), factors.max()])
        start = max(self.start + int(np.floor(lowest)) * BINS_PER_OCTAVE, 0)
        stop = self.stop + int(np.ceil(highest)) * BINS_PER_OCTAVE
        edges = _magnitudes(np.arange(start, max(stop, start) + 1))
        below = self._below(edges[None] / factors[:, None])
        positive, negative = np.tensordot(gains, below, axes=(0, 0))
        return Distribution(
            minimum=low,
            maximum=high,
            edges=np.concatenate([-edges[::-1], edges]),
            below=np.concatenate([negative[-1] - negative[::-1], negative[-1] + positive]),
        )

    def _below(self, magnitudes: Array) -> Array:
        """Weight of each channel below each magnitude, (C, E): (C, 2, E)."""
        columns = _keys(magnitudes) - self.start
        whole = np.clip(columns, 0, self.weights.shape[2])
        left = whole.astype(np.int64)
        total = np.zeros((*self.weights.shape[:2], self.weights.shape[2] + 2))
        np.cumsum(self.weights, axis=2, dtype=np.float64, out=total[:, :, 1:-1])
        total[:, :, -1] = total[:, :, -2]
        index = left[:, None, :]
        low, high = (np.take_along_axis(total, index + step, axis=2) for step in (0, 1))
        return np.asarray(low + (whole - left)[:, None, :] * (high - low))

    def over(self, start: int, stop: int) -> Array:
        """The weights with columns from bin `start` to bin `stop`; no copy where these are all."""
        if not self.weights.size:
            return np.zeros((*self.weights.shape[:2], stop - start))
        if (start, stop) == (self.start, self.stop):
            return self.weights
        return np.pad(self.weights, ((0, 0), (0, 0), (self.start - start, stop - self.stop)))


def join_spreads(parts: Sequence[ChannelSpread]) -> ChannelSpread:
    """The channels of several tensors of one size, one after the other.

    The energy of a tensor says nothing beside that of another: channels get a weight of about 1 on
    the average of their tensor.
    """
    start, stop = _span(parts)
    weights = np.concatenate([part.over(start, stop) / part.mean_weight for part in parts])
    return ChannelSpread(start=start, weights=weights)


def _span(parts: Sequence[ChannelSpread]) -> tuple[int, int]:
    """The bins of all, (0, 0) without any."""
    bounds = [(part.start, part.stop) for part in parts if part.weights.size] or [(0, 0)]
    starts, stops = zip(*bounds, strict=True)
    return int(min(starts)), int(max(stops))


class SpreadCollector:
    """Gathers a `ChannelSpread` batch by batch.

    Samples wait until a few can be counted together: the weights of all channels are larger than
    what a sample adds to them, and cost more to move.

    Args:
        channels: how many.
        pixels: of a channel of a sample that are counted, evenly spread, at most.
    """

    def __init__(self, channels: int, pixels: int):
        self._start = 0
        self._pixels = pixels
        self._weights = np.zeros((channels, 2, 0))
        self._given = False  # whether a `ChannelSpread` holds the weights
        self._waiting: list[tuple[Array, float]] = []

    def add(self, view: Array, energy: Array) -> None:
        """Add a batch.

        Args:
            view: float32, (N, before, C, after).
            energy: sum of the squares of each sample, (N,).
        """
        counted = thinned(view, self._pixels)
        share = view[0].size / counted[0].size if counted.size else 0.0
        for sample, total in zip(counted, energy, strict=True):
            if total > 0:
                weight = 2.0 ** np.round(np.log2(share / total))
                self._waiting.append((sample.transpose(1, 0, 2).copy(), weight))
        if len(self._waiting) >= TOGETHER:
            self._count()

    def spread(self) -> ChannelSpread:
        """What has been gathered so far."""
        self._count()
        self._given = True
        return ChannelSpread.folded(self._start, self._weights)

    def _count(self) -> None:
        """Count what waits."""
        samples = [sample.reshape(len(self._weights), -1) for sample, _ in self._waiting]
        if not samples:
            return
        weights = [np.full(s.shape[1], w) for s, (_, w) in zip(samples, self._waiting, strict=True)]
        self._waiting.clear()
        bits = np.concatenate(samples, axis=1).view(np.uint32)
        keys = ((bits & np.uint32(0x7FFFFFFF)) >> np.uint32(SHIFT)).astype(np.intp)
        self._reserve(int(keys.max()))
        bins = self._weights.shape[2]
        np.maximum(keys, self._start, out=keys)
        keys += (bits >> np.uint32(31)).astype(np.intp) * bins
        keys += (np.arange(len(keys)) * 2 * bins - self._start)[:, None]
        repeated = np.broadcast_to(np.concatenate(weights), keys.shape)
        np.add.at(self._weights.reshape(-1), keys.reshape(-1), repeated.reshape(-1))

    def _reserve(self, key: int) -> None:
        bins = self._weights.shape[2]
        if not bins:
            self._start = max(key + 1 - BINS, 0)
        grown = max(key + 1 - self._start - bins, 0)
        if grown or self._given:
            weights = np.zeros((len(self._weights), 2, bins + grown))
            weights[:, :, :bins] = self._weights
            self._weights, self._given = weights, False


def _keys(magnitudes: Array) -> Array:
    """Bin of each magnitude, float64, with the place within the bin as its fraction."""
    bits = np.asarray(magnitudes, np.float32).view(np.uint32)
    return np.asarray(bits / float(1 << SHIFT))


def _magnitudes(keys: Array) -> Array:
    """Lower bound of each bin: float64."""
    return (keys.astype(np.uint32) << np.uint32(SHIFT)).view(np.float32).astype(np.float64)
