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
from tvm_quant.estimator.affine import SMALLEST_RANGE, scale_zero_point
from tvm_quant.op import QuantSpec
from tvm_quant.statistics import Distribution, TensorStatistics

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
        needs_counts: whether it reads more of them than the extremes of each sample.
    """

    needs_statistics: ClassVar[bool] = True
    needs_counts: ClassVar[bool] = True

    @abstractmethod
    def range(self, stats: TensorStatistics, spec: QuantSpec) -> Range:
        """The range to cover.

        Args:
            stats: of at least one sample, finite.
            spec: the grid; where it is symmetric, the wider side of the range counts.
        """

    def matched_range(self, spread: Distribution, _spec: QuantSpec) -> tuple[float, float]:
        """(low, high) to cover of a tensor whose channels were scaled to each other.

        Args:
            spread: of the scaled tensor; its minimum and maximum hold what `range` gave each
                channel, and are the answer of estimators that minimise no error.
            _spec: the grid.
        """
        return spread.minimum, spread.maximum


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
            scale: float32, > 0; () per tensor, otherwise weight's rank with ones but at the axis
                (and at axis 0, where `spec.groups` makes blocks).
            zero_point: int32, shape of `scale`.
        """
        rows = channel_rows(weight, spec)
        scale, zero_point = self._scales(*self.weight_range(rows, spec), spec)
        silent = np.abs(rows).max(axis=1, initial=0.0) < SMALLEST_RANGE
        if silent.any():
            spare = scale[~silent].max() if not silent.all() else 1.0 / max(spec.qmax, 1)
            scale = np.where(silent, np.float32(spare), scale)
        return (
            to_weight_axes(scale, np.shape(weight), spec),
            to_weight_axes(zero_point, np.shape(weight), spec),
        )

    def _scales(self, low: Array, high: Array, spec: QuantSpec) -> tuple[Array, Array]:
        return scale_zero_point(low, high, spec)


def channel_rows(weight: Array, spec: QuantSpec) -> Array:
    """One row per channel (of each block, see `QuantSpec.groups`), or one row: float64, (C, K)."""
    weight = np.asarray(weight, np.float64)
    if spec.axis is None:
        return weight.reshape(1, -1)
    if spec.groups == 1:
        return np.moveaxis(weight, spec.axis, 0).reshape(weight.shape[spec.axis], -1)
    blocks = weight.reshape(spec.groups, -1, *weight.shape[1:])
    channels = np.moveaxis(blocks, spec.axis + 1, 1)
    return channels.reshape(spec.groups * channels.shape[1], -1)


def to_weight_axes(rows: Array, shape: tuple[int, ...], spec: QuantSpec) -> Array:
    """One value per row of `channel_rows`, as an array that broadcasts against the weight.

    >>> deconvolution = QuantSpec(axis=1, groups=2)
    >>> to_weight_axes(np.arange(4), (4, 2, 3, 3), deconvolution)[:, :, 0, 0].tolist()
    [[0, 1], [0, 1], [2, 3], [2, 3]]
    """
    if spec.axis is None:
        return rows.reshape(())
    axes = [1] * len(shape)
    axes[spec.axis] = -1
    if spec.groups == 1:
        return rows.reshape(axes)
    axes[0] = shape[0]
    blocks = rows.reshape(spec.groups, -1)
    return np.repeat(blocks, shape[0] // spec.groups, axis=0).reshape(axes)


def row_extremes(rows: Array) -> tuple[Array, Array]:
    """(smallest, largest) value of each row, with 0 among them: float64, (C,)."""
    return rows.min(axis=1, initial=0.0), rows.max(axis=1, initial=0.0)
