"""Searching the range with the smallest expected error, both ends jointly."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.estimator.affine import scale_zero_point
from tvm_quant.estimator.error import ErrorModel, Spread
from tvm_quant.op import QuantSpec

Array = npt.NDArray[Any]

DEEPEST = 8  # octaves below the extremes where the search starts looking
STEPS = (1.0, 0.25, 0.0625)  # octaves between candidates, round by round
REACH = 4  # steps to either side of the best so far


def best_range(stats: Spread, spec: QuantSpec, p: float) -> tuple[float, float]:
    """The range within the extremes of the data whose grid makes the smallest L_p error.

    Ends are searched in octaves below the extremes, coarse to fine down to 4 %; the extremes
    themselves are always among the candidates, and of equally good ranges the widest wins.

    Args:
        stats: of at least one sample, its minimum and maximum the widest range.
        p: exponent of the error, >= 1.

    Returns:
        (low, high), low <= 0 <= high.
    """
    low, high = _widest(stats, spec)
    if low == high:
        return low, high
    model = ErrorModel(stats, p)
    best = np.zeros(2)
    two_sided = low < 0 < high and not spec.symmetric
    for step in STEPS:
        offsets = np.arange(-REACH, REACH + 1) if step < 1 else np.arange(DEEPEST + 1)
        depths = _candidates(best, step * offsets, two_sided=two_sided)
        grids = scale_zero_point(low * 2.0 ** -depths[:, 0], high * 2.0 ** -depths[:, 1], spec)
        best = depths[int(np.argmin(model.error(*grids, spec)))]
    return low * 2.0 ** -best[0], high * 2.0 ** -best[1]


def _widest(stats: Spread, spec: QuantSpec) -> tuple[float, float]:
    low, high = min(stats.minimum, 0.0), max(stats.maximum, 0.0)
    if not spec.symmetric:
        return low, high
    if not spec.signed:
        return 0.0, high
    reach = max(-low, high)
    return -reach, reach


def _candidates(best: Array, offsets: Array, *, two_sided: bool) -> Array:
    """Depths (low, high) around the best so far, and the extremes: (K, 2), the widest first."""
    if two_sided:
        lows, highs = np.meshgrid(best[0] + offsets, best[1] + offsets, indexing="ij")
        depths = np.stack([lows.ravel(), highs.ravel()], axis=1)
    else:
        depths = (best[1] + offsets)[:, None] * np.ones(2)
    depths = np.concatenate([np.zeros((1, 2)), best[None], np.maximum(depths, 0.0)])
    order = np.argsort(depths.sum(axis=1), kind="stable")
    return depths[order]
