"""Which calibration samples are run again after profiling, and how much each counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Batches = Iterable[Mapping[str, Array]]
#: Inputs and number of samples.
Batch = tuple[Mapping[str, Array], int]

#: Samples that tell what layers read.
SAMPLES = 64
#: A sample counts at most this many times as much as the median one, however silent it is.
MOST_WEIGHT = 16


class Choice:
    """Which batches are chosen, told one after the other: `samples` samples in all.

    They are evenly spaced, since neighbours may be alike: a folder is sorted by class. Where the
    length is unknown, they are the first.
    """

    def __init__(self, dataset: Batches, samples: int):
        self._length = len(dataset) if isinstance(dataset, Sized) else 0
        self._samples = self._left = samples
        self._index, self._step = 0, 1

    @property
    def complete(self) -> bool:
        """Whether no more are chosen."""
        return self._left <= 0

    def takes(self, size: int) -> bool:
        """Whether the next batch, of `size` samples, is chosen."""
        if not self._index:
            self._step = max(self._length * size // self._samples, 1)
        chosen = not self.complete and self._index % self._step == 0
        self._index += 1
        self._left -= size if chosen else 0
        return chosen


@dataclass(frozen=True)
class Chosen:
    """Batches of `samples` samples of a data set, read when they are asked for; see `Choice`."""

    dataset: Batches
    samples: int
    batched: bool

    def __iter__(self) -> Iterator[Mapping[str, Array]]:
        return (batch for batch, _size in self.sized())

    def sized(self) -> Iterator[Batch]:
        """Each batch with the number of its samples."""
        choice = Choice(self.dataset, self.samples)
        for batch in self.dataset:
            size = len(next(iter(batch.values()))) if self.batched else 1
            if choice.takes(size):
                yield batch, size
            if choice.complete:
                break


def energy_floor(energy: Array) -> float:
    """Energy below which a sample counts no more than at it; 0 where half are silent.

    Args:
        energy: mean square of each sample, (S,); those that are not finite are left out.
    """
    finite = energy[np.isfinite(energy)]
    return float(np.median(finite)) / MOST_WEIGHT if finite.size else 0.0


def inverse_energy(energy: Array, floor: float) -> Array:
    """Weights of samples by which an error counts beside the signal, whatever the loudness.

    Args:
        energy: mean square of each sample, finite, (S,).
        floor: see `energy_floor`.

    Returns:
        1 / energy, or 1 / floor where that is less; ones where there is no floor.

    >>> energy = np.array([1.0, 2.0, 4.0, 0.0])
    >>> inverse_energy(energy, energy_floor(energy)).tolist()
    [1.0, 0.5, 0.25, 10.666666666666666]
    """
    if 0 < floor < np.inf:
        return np.asarray(1 / np.maximum(energy, floor))
    return np.ones(len(energy))
