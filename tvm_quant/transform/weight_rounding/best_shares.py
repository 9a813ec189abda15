"""Choosing the steps of few-bit weights by what the weights are multiplied with.

With few codes, the step that just covers the largest weight of a channel is too coarse for the
others. A smaller one clips some and rounds the rest more finely. So several are tried, and each
output channel keeps the one that leaves its output the smallest error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

#: Steps to try, as shares of the one that covers the largest weight.
SHARES = (1.0, 0.88, 0.76, 0.65, 0.54)


def best_shares(errors: Array, shares: Sequence[float], *, together: bool = False) -> Array:
    """The share of each output channel that leaves its output the smallest error.

    Args:
        errors: of each share and channel, (S, O).
        shares: S of them; of equally good ones the first wins.
        together: one share for all channels, by the sum of their errors.

    Returns:
        (O,), float64.

    >>> best_shares(np.array([[3.0, 1.0], [2.0, 9.0]]), (1.0, 0.5)).tolist()
    [0.5, 1.0]
    """
    if together:
        errors = np.broadcast_to(errors.sum(axis=1, keepdims=True), errors.shape)
    return np.asarray(np.asarray(shares)[errors.argmin(axis=0)])
