"""A histogram whose bins do not depend on the data: one per sign, exponent and 10 mantissa bits.

The bin of a float32 is its bit pattern without the 13 lowest bits, so counting is a shift and a
`bincount`, nothing has to be known about the range beforehand, and adding two histograms bin by bin
gives exactly the histogram of both data sets, in any order. Bins are 2**-10 of their power of two
wide: at least 1024 over the upper half of any range, and as fine around 0 as any grid asks for. One
value of 1e4 among values near 1 costs no resolution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

MANTISSA_BITS = 10
SHIFT = 23 - MANTISSA_BITS
BINS_PER_OCTAVE = 1 << MANTISSA_BITS
TINY_EXPONENT = -40
TINY = 2.0**TINY_EXPONENT
FIRST_KEY = (127 + TINY_EXPONENT) << MANTISSA_BITS

_SIGN = 1 << (31 - SHIFT)  # the sign in the bit pattern of a bin
_BLOCK = 1 << 14  # values counted at a time: keeps the temporaries in the cache


@dataclass(frozen=True, kw_only=True)
class Window:
    """Counts of neighbouring bins of one sign: bin `start + i` holds `counts[i]` magnitudes."""

    start: int = FIRST_KEY
    counts: Array  # int64, (B,); no zeros at either end

    @classmethod
    def trimmed(cls, start: int, counts: Array) -> Window:
        """The window without empty bins at its ends."""
        used = np.flatnonzero(counts)
        if not used.size:
            return cls(counts=np.zeros(0, np.int64))
        first, last = int(used[0]), int(used[-1])
        return cls(start=start + first, counts=counts[first : last + 1].astype(np.int64))

    @property
    def stop(self) -> int:
        """Key after the last bin."""
        return self.start + len(self.counts)

    def merge(self, other: Window) -> Window:
        """Bin-wise sum."""
        if not len(other.counts):
            return self
        if not len(self.counts):
            return other
        start, stop = min(self.start, other.start), max(self.stop, other.stop)
        total = np.zeros(stop - start, np.int64)
        for window in (self, other):
            total[window.start - start : window.stop - start] += window.counts
        return Window(start=start, counts=total)

    def until(self, end: float) -> Window:
        """The bins that begin at or below the magnitude `end`."""
        stop = (int(np.float32(end).view(np.uint32)) >> SHIFT) + 1
        return Window.trimmed(self.start, self.counts[: max(stop - self.start, 0)])

    def edges(self) -> Array:
        """Bounds of the bins as magnitudes: float64, (B + 1,), increasing; (0,) when empty."""
        if not len(self.counts):
            return np.zeros(0)
        return _key_to_float(np.arange(self.start, self.stop + 1))


@dataclass(frozen=True, kw_only=True)
class FloatHistogram:
    """Counts of float32 values by sign, exponent and leading mantissa bits.

    Attributes:
        zeros: how many values are 0 or smaller in magnitude than 2**-40.
        positive, negative: counts of the other values.

    >>> histogram = FloatHistogram.of(np.float32([0, 1, 1, -3]))
    >>> histogram.total, histogram.zeros
    (4, 1)
    """

    zeros: int
    positive: Window
    negative: Window

    @classmethod
    def of(cls, values: Array) -> FloatHistogram:
        """Count finite float32 values of any shape; NaN and Inf have no bin."""
        counter = HistogramCounter()
        counter.add(values)
        return counter.histogram()

    @property
    def total(self) -> int:
        """Number of values counted."""
        return self.zeros + self.nonzeros

    @property
    def nonzeros(self) -> int:
        """Number of values other than zero."""
        return int(self.positive.counts.sum() + self.negative.counts.sum())

    def merge(self, other: FloatHistogram) -> FloatHistogram:
        """The histogram of both data sets. Exact, associative and commutative."""
        return FloatHistogram(
            zeros=self.zeros + other.zeros,
            positive=self.positive.merge(other.positive),
            negative=self.negative.merge(other.negative),
        )

    def within(self, low: float, high: float) -> FloatHistogram:
        """Without the bins that lie wholly outside [low, high]; needs low <= 0 <= high."""
        return FloatHistogram(
            zeros=self.zeros,
            positive=self.positive.until(high),
            negative=self.negative.until(-low),
        )

    def magnitudes(self) -> FloatHistogram:
        """The histogram of the absolute values."""
        return FloatHistogram(
            zeros=self.zeros,
            positive=self.positive.merge(self.negative),
            negative=Window(counts=np.zeros(0, np.int64)),
        )

    def bins(self) -> tuple[Array, Array]:
        """(edges, counts) of the nonzero values, from the most negative to the largest.

        Returns:
            edges: float64, (B + 1,), increasing.
            counts: int64, (B,). Where both signs occur, the gap between the smallest magnitudes is
                a bin of count 0; exact zeros are not counted.
        """
        positive, negative = self.positive, self.negative
        parts = [-negative.edges()[::-1], positive.edges()]
        counts = [negative.counts[::-1], positive.counts]
        if len(positive.counts) and len(negative.counts):
            counts.insert(1, np.zeros(1, np.int64))
        edges = np.concatenate(parts)
        return (
            (edges, np.concatenate(counts)) if edges.size else (np.zeros(1), np.zeros(0, np.int64))
        )


class HistogramCounter:
    """Counts values into one buffer, about 3 ns a value, and then makes a `FloatHistogram`."""

    def __init__(self) -> None:
        self._counts = np.zeros(
            2 * _SIGN, np.int64
        )  # by bit pattern; what is not used takes no memory
        self._top = 0  # largest magnitude bin in use

    def add(self, values: Array) -> None:
        """Count finite float32 values of any shape."""
        bits = np.ascontiguousarray(values, np.float32).reshape(-1).view(np.uint32)
        for start in range(0, bits.size, _BLOCK):
            keys = (bits[start : start + _BLOCK] >> np.uint32(SHIFT)).astype(np.intp)
            np.add.at(self._counts, keys, 1)
            self._top = max(self._top, int((keys & (_SIGN - 1)).max()))

    def histogram(self) -> FloatHistogram:
        """What has been counted so far."""
        positive, negative = self._counts.reshape(2, _SIGN)[:, : self._top + 1]
        return FloatHistogram(
            zeros=int(positive[:FIRST_KEY].sum() + negative[:FIRST_KEY].sum()),
            positive=Window.trimmed(FIRST_KEY, positive[FIRST_KEY:]),
            negative=Window.trimmed(FIRST_KEY, negative[FIRST_KEY:]),
        )


def _key_to_float(keys: Array) -> Array:
    """Lower bound, as a magnitude, of each bin: float64."""
    return (keys.astype(np.uint32) << np.uint32(SHIFT)).view(np.float32).astype(np.float64)
