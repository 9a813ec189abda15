"""Counting some of the values of a large tensor: evenly spaced pixels, the same in all channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

#: Samples of which everything below is counted; of more, each counts so much less.
SAMPLES = 64


@dataclass(frozen=True, kw_only=True)
class Thinning:
    """How much of each sample is counted, at most.

    Attributes:
        values: of a tensor.
        least: of a channel, whatever the number of channels.
        spread: of a channel, for its spread.
    """

    values: int = 1 << 16
    least: int = 32
    spread: int = 64

    @classmethod
    def of_samples(cls, samples: int) -> Thinning:
        """What is enough of each of so many samples; 0: of an unknown number.

        >>> Thinning.of_samples(256)
        Thinning(values=16384, least=8, spread=16)
        """
        whole = cls()
        share = max(samples / SAMPLES, 1.0)
        return cls(
            values=round(whole.values / share),
            least=max(round(whole.least / share), 1),
            spread=max(round(whole.spread / share), 1),
        )

    def counted(self, view: Array) -> Array:
        """What is counted of (N, before, C, after)."""
        pixels = max(self.values // max(view.shape[2], 1), self.least)
        return np.ascontiguousarray(thinned(view, pixels))


def thinned(view: Array, pixels: int) -> Array:
    """At most `pixels` values of each channel of each sample, at odd strides.

    Args:
        view: (N, before, C, after).
        pixels: >= 1.

    >>> thinned(np.arange(12).reshape(1, 1, 2, 6), 2).tolist()
    [[[[0, 3], [6, 9]]]]
    """
    before, after = view.shape[1], view.shape[3]
    rows = view[:, :: _stride(before, max(pixels // max(after, 1), 1))]
    return np.asarray(rows[:, :, :, :: _stride(after, max(pixels // max(rows.shape[1], 1), 1))])


def _stride(length: int, wanted: int) -> int:
    return -(-length // wanted) | 1 if length > wanted else 1
