"""Noise over signal at the outputs of a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def energy(array: Array) -> float:
    """Sum of squares, in float64."""
    return float(np.square(array.astype(np.float64)).sum())


def noise_energies(reference: Sequence[Array], outputs: Sequence[Array]) -> list[float]:
    """Energy of the difference of each output."""
    pairs = zip(reference, outputs, strict=True)
    return [energy(one.astype(np.float64) - other) for one, other in pairs]


def mean_ratio(noise: Array, signal: Array) -> Array:
    """Noise over signal, averaged over the outputs that have a signal.

    Args:
        noise: energies, (..., outputs).
        signal: energies, (outputs,).

    >>> mean_ratio(np.array([[1.0, 3.0], [0.0, 4.0]]), np.array([10.0, 10.0])).tolist()
    [0.2, 0.2]
    """
    heard = signal > 0
    if not heard.any():
        return np.asarray(noise.sum(axis=-1))
    return np.asarray((noise[..., heard] / signal[heard]).mean(axis=-1))


def noise_to_signal(reference: Sequence[Array], outputs: Sequence[Array]) -> float:
    """Of a network as a whole.

    >>> noise_to_signal([np.array([3.0, 4.0])], [np.array([3.0, 5.0])])
    0.04
    """
    signal = np.array([energy(one) for one in reference])
    return float(mean_ratio(np.array(noise_energies(reference, outputs)), signal))
