"""What an estimator is. A new one is one file with one class, and one row in `ESTIMATORS`.

An activation estimator turns the statistics of a tensor into a range; a weight estimator turns a
constant into a scale. One class may be both. Options are fields with defaults: a variant is
`dataclasses.replace(ESTIMATORS["norm"], p=3.0)`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tvm_quant.errors import ConfigError
from tvm_quant.estimator.affine import scale_zero_point
from tvm_quant.op import QuantSpec
from tvm_quant.statistics import TensorStatistics

Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Range:
    """The real values a grid should cover; values outside are clipped.

    Attributes:
        low, high: ends, low <= 0 <= high.
        dropped: indices of the samples that were left out as outliers.
    """

    low: float
    high: float
    dropped: tuple[int, ...] = ()

    @classmethod
    def around_zero(cls, low: float, high: float) -> Range:
        """The range from `low` to `high`, widened to hold 0."""
        return cls(low=min(float(low), 0.0), high=max(float(high), 0.0))


@dataclass(frozen=True, kw_only=True)
class Estimator:
    """Common part of both roles.

    Attributes:
        name: key in `ESTIMATORS`.
        summary: one line for `--help` and tables.
    """

    name: ClassVar[str]
    summary: ClassVar[str]

    def _check(self, option: str, low: float, high: float) -> None:
        """Refuse an option outside [low, high]."""
        value = getattr(self, option)
        if not low <= value <= high:
            raise ConfigError(
                f"Option {option} of estimator '{self.name}' is {value!r}; expected {low:g} to "
                f"{high:g}."
            )


class ActivationEstimator(Estimator, ABC):
    """Estimates the range of a tensor that is computed at run time.

    Attributes:
        needs_statistics: whether `range` reads the statistics.
    """

    needs_statistics: ClassVar[bool] = True

    @abstractmethod
    def range(self, stats: TensorStatistics, spec: QuantSpec) -> Range:
        """The range to cover.

        Args:
            stats: of at least one sample, finite.
            spec: the grid; where it is symmetric, the wider side of the range counts.
        """


class WeightEstimator(Estimator, ABC):
    """Estimates the scale of a constant, per tensor or per channel as `spec.axis` says."""

    @abstractmethod
    def weight_range(self, rows: Array, spec: QuantSpec) -> tuple[Array, Array]:
        """(low, high) of each row, float64, (C,), with low <= 0 <= high.

        Args:
            rows: float64, (C, K): one row per channel, or one row for the tensor.
            spec: the grid.
        """

    def weight_scale(self, weight: Array, spec: QuantSpec) -> tuple[Array, Array]:
        """Scale and zero point of a constant.

        A channel of zeros takes the largest scale of the others, so that the bias that is added to
        it, which is stored in units of this scale, neither overflows nor loses its digits.

        Args:
            weight: float, any shape, finite.
            spec: the grid and the channel axis.

        Returns:
            scale: float32, > 0; () per tensor, otherwise weight's rank with ones but at the axis.
            zero_point: int32, shape of `scale`.
        """
        rows = channel_rows(weight, spec.axis)
        scale, zero_point = self._scales(*self.weight_range(rows, spec), spec)
        silent = ~rows.any(axis=1)
        if silent.any():
            spare = scale[~silent].max() if not silent.all() else 1.0 / max(spec.qmax, 1)
            scale = np.where(silent, np.float32(spare), scale)
        shape = broadcast_shape(weight.ndim, spec.axis)
        return scale.reshape(shape), zero_point.reshape(shape)

    def _scales(self, low: Array, high: Array, spec: QuantSpec) -> tuple[Array, Array]:
        return scale_zero_point(low, high, spec)


def channel_rows(weight: Array, axis: int | None) -> Array:
    """One row per channel, or one row for the tensor: float64, (C, K)."""
    weight = np.asarray(weight, np.float64)
    if axis is None:
        return weight.reshape(1, -1)
    return np.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1)


def broadcast_shape(rank: int, axis: int | None) -> tuple[int, ...]:
    """Shape of a scale that broadcasts against a tensor of `rank`.

    >>> broadcast_shape(4, 1), broadcast_shape(4, None)
    ((1, -1, 1, 1), ())
    """
    return () if axis is None else tuple(-1 if i == axis % rank else 1 for i in range(rank))


def row_extremes(rows: Array) -> tuple[Array, Array]:
    """(smallest, largest) value of each row, with 0 among them: float64, (C,)."""
    return rows.min(axis=1, initial=0.0), rows.max(axis=1, initial=0.0)
