"""Which calibration samples are run again after profiling, and how much each counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Batches = Iterable[Mapping[str, Array]]
#: Inputs and number of samples.
Batch = tuple[Mapping[str, Array], int]

#: A sample counts at most this many times as much as the median one, however silent it is.
MOST_WEIGHT = 16


def chosen_batches(dataset: Batches, samples: int, *, batched: bool) -> list[Batch]:
    """Batches of `samples` samples: evenly spaced, or the first where the length is unknown.

    Evenly spaced, since neighbours may be alike: a folder is sorted by class.
    """
    batches: list[Batch] = []
    step = 1
    for index, batch in enumerate(dataset):
        size = len(next(iter(batch.values()))) if batched else 1
        if not index and isinstance(dataset, Sized):
            step = max(len(dataset) * size // samples, 1)
        if index % step:
            continue
        batches.append((batch, size))
        samples -= size
        if samples <= 0:
            break
    return batches


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
