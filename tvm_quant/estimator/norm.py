"""Ranges with the smallest expected quantization error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tvm_quant.estimator.affine import grid_ends, scale_zero_point
from tvm_quant.estimator.base import ActivationEstimator, Range, WeightEstimator, row_extremes
from tvm_quant.estimator.search import best_range
from tvm_quant.op import QuantSpec
from tvm_quant.statistics import Distribution, TensorStatistics

Array = npt.NDArray[Any]

# Changes to a channel's share of its extremes, round by round, the widest range first. At 8 bits
# the error moves by a fifth between shares 1 % apart, as single weights cross between codes.
ROUNDS = (np.linspace(0.0, -0.8, 17), np.linspace(0.05, -0.05, 11), np.linspace(0.01, -0.01, 21))


@dataclass(frozen=True, kw_only=True)
class Norm(ActivationEstimator):
    """The range whose grid makes the smallest L_p error: the larger p, the less is clipped.

    Both ends are searched jointly on the histogram. p = 2 is the mean squared error; p towards
    infinity is `minmax`.

    Source: Nahshan et al., "Loss aware post-training quantization", arXiv:1911.07190, section 3.
    """

    name: ClassVar[str] = "norm"
    summary: ClassVar[str] = "smallest L_p error"

    #: Exponent of the error, 1 to 64.
    p: float = 3.0

    def __post_init__(self) -> None:
        self._check("p", 1.0, 64.0)

    def range(self, stats: TensorStatistics, spec: QuantSpec) -> Range:
        """The range to cover; see `ActivationEstimator.range`."""
        return Range.around_zero(*best_range(stats, spec, self.p))

    def matched_range(self, spread: Distribution, spec: QuantSpec) -> tuple[float, float]:
        """The range to cover; see `ActivationEstimator.matched_range`."""
        return best_range(spread, spec, self.p)


@dataclass(frozen=True, kw_only=True)
class MeanSquaredError(ActivationEstimator, WeightEstimator):
    """The range, or the scale of each channel, whose grid makes the smallest squared error.

    Weights are searched exactly, as a share of their extremes, in steps down to 0.1 %.

    Source: Banner et al., arXiv:1810.05723, section 3, searched instead of solved.
    """

    name: ClassVar[str] = "mse"
    summary: ClassVar[str] = "smallest squared error"

    def range(self, stats: TensorStatistics, spec: QuantSpec) -> Range:
        """The range to cover; see `ActivationEstimator.range`."""
        return Range.around_zero(*best_range(stats, spec, 2.0))

    def matched_range(self, spread: Distribution, spec: QuantSpec) -> tuple[float, float]:
        """The range to cover; see `ActivationEstimator.matched_range`."""
        return best_range(spread, spec, 2.0)

    def weight_range(self, rows: Array, spec: QuantSpec) -> tuple[Array, Array]:
        """The range of each row; see `WeightEstimator.weight_range`."""
        low, high = row_extremes(rows)
        share = np.ones(len(rows))
        for offsets in ROUNDS:
            share = _best_share(rows, low, high, share[:, None] + offsets, spec)
        return low * share, high * share


def _best_share(rows: Array, low: Array, high: Array, shares: Array, spec: QuantSpec) -> Array:
    """Of each row's candidate shares, (C, S), the one with the smallest squared error: (C,)."""
    shares = np.clip(shares, 0.01, 1.0)
    errors = [_squared_errors(rows, low * share, high * share, spec) for share in shares.T]
    return np.asarray(shares[np.arange(len(rows)), np.argmin(errors, axis=0)])


def _squared_errors(rows: Array, low: Array, high: Array, spec: QuantSpec) -> Array:
    scale, zero_point = scale_zero_point(low, high, spec)
    bottom, top = grid_ends(scale, zero_point, spec)
    step = scale.astype(np.float64)[:, None]
    rounded = np.clip(np.rint(rows / step) * step, bottom[:, None], top[:, None])
    return np.asarray(np.square(rounded - rows).sum(axis=1))
