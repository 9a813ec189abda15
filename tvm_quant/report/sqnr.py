"""Signal to quantization noise ratio."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.errors import DatasetError


@dataclass
class SqnrMeter:
    """SQNR over any number of pairs, in float64; memory does not grow.

    >>> meter = SqnrMeter()
    >>> meter.add(np.ones(4), np.full(4, 0.9))
    >>> round(meter.db, 3)
    20.0
    """

    signal: float = 0.0
    noise: float = 0.0

    def add(self, reference: npt.NDArray[Any], actual: npt.NDArray[Any]) -> None:
        """Take in a pair of arrays of equal shape.

        Raises:
            DatasetError: the shapes differ.
        """
        if reference.shape != actual.shape:
            raise DatasetError(
                f"SQNR: the reference has shape {reference.shape}, the other array {actual.shape}"
            )
        exact = np.asarray(reference, np.float64)
        self.signal += float(np.square(exact).sum())
        self.noise += float(np.square(exact - np.asarray(actual, np.float64)).sum())

    @property
    def db(self) -> float:
        """10 log10(signal / noise); inf without noise, -inf without signal, NaN if NaN came in."""
        if math.isnan(self.noise) or math.isnan(self.signal):
            return math.nan
        if self.noise == 0:
            return math.inf
        return 10 * math.log10(self.signal / self.noise) if self.signal else -math.inf


def sqnr_db(reference: npt.NDArray[Any], actual: npt.NDArray[Any]) -> float:
    """Signal to quantization noise ratio in dB, 10 log10(sum r^2 / sum (r - a)^2).

    Args:
        reference: any shape; what float computes.
        actual: same shape; what the quantized network computes.

    Returns:
        inf for equal arrays.

    Raises:
        DatasetError: the shapes differ.

    >>> sqnr_db(np.array([10.0]), np.array([9.0]))
    20.0
    """
    meter = SqnrMeter()
    meter.add(reference, actual)
    return meter.db
