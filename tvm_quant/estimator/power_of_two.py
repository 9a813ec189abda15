"""Scales that have to be powers of two: of the two next to a scale, the one that errs less.

Rounded up, a scale wastes up to half of the codes; rounded down, it clips up to half of the range.
Which costs more depends on how the values are spread, so it is measured: on the histogram of an
activation, on the very values of a weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.estimator.affine import ceil_power_of_two, grid_ends, scale_zero_point
from tvm_quant.estimator.base import channel_rows, to_weight_axes
from tvm_quant.estimator.error import ErrorModel, Spread
from tvm_quant.op import QuantSpec

Array = npt.NDArray[Any]

SQUARED = 2.0
"""Exponent of the error that decides."""


def power_of_two_grid(
    low: float, high: float, spec: QuantSpec, spreads: Sequence[Spread] = ()
) -> tuple[Array, Array]:
    """The grid of one scale for the range [low, high], with a power of two for its scale.

    Args:
        low, high: ends of the range that an estimator chose.
        spec: the grid, one scale per tensor.
        spreads: the tensors that share it. Without, the nearer power wins, in octaves.

    Returns:
        scale: float32, (), > 0; zero_point: int32, ().

    >>> float(power_of_two_grid(-8.0, 8.0, QuantSpec(narrow=True))[0])
    0.0625
    """
    exact, _ = scale_zero_point(low, high, spec)
    scales = _neighbours(exact.astype(np.float64))
    zero_points = np.array([_zero_point(low, scale, float(exact), spec) for scale in scales])
    if spreads:
        models = [ErrorModel(spread, SQUARED) for spread in spreads]
        costs = np.sum([model.error(scales, zero_points, spec) for model in models], axis=0)
    else:
        costs = np.abs(np.log2(scales / float(exact)))
    best = int(np.argmin(costs))
    return np.asarray(scales[best], np.float32), np.asarray(zero_points[best], np.int32)


def power_of_two_weight_scale(
    weight: Array, scale: Array, zero_point: Array, spec: QuantSpec
) -> Array:
    """The power of two next to each scale of a weight that makes the smaller squared error.

    Args:
        weight: float, any shape, finite.
        scale, zero_point: as `WeightEstimator.weight_scale` returns them.
        spec: the grid and the channel axis.

    Returns:
        float32, shape of `scale`.

    >>> spec = QuantSpec(narrow=True)
    >>> ramp = np.linspace(-1.0, 1.0, 999)
    >>> far, near = np.float32(1.0 / 127), np.float32(0.995 / 127)
    >>> [float(power_of_two_weight_scale(ramp, s, np.int32(0), spec) * 128) for s in (far, near)]
    [1.0, 1.0]
    """
    above, below = _neighbours(np.asarray(scale, np.float64))
    errors = [_squared_errors(weight, candidate, zero_point, spec) for candidate in (above, below)]
    lower = to_weight_axes(errors[1] < errors[0], np.shape(weight), spec)
    return np.asarray(np.where(lower, below, above), np.float32)


def _neighbours(scale: Array) -> Array:
    """The powers of two above and below each scale, along a new first axis; itself if it is one."""
    above = ceil_power_of_two(scale)
    return np.stack([above, np.where(above == scale, above, above / 2)])


def _zero_point(low: float, scale: float, exact: float, spec: QuantSpec) -> int:
    """That of the range; where the scale is too fine for it, both ends lose alike."""
    if spec.symmetric:
        return 0
    zero_point = np.rint(spec.qmin - min(low, 0.0) / max(scale, exact))
    return int(np.clip(zero_point, spec.qmin, spec.qmax))


def _squared_errors(weight: Array, scale: Array, zero_point: Array, spec: QuantSpec) -> Array:
    """Of each channel: float64, (C,)."""
    bottom, top = grid_ends(scale, zero_point, spec)
    rounded = np.clip(np.rint(weight / scale) * scale, bottom, top)
    return np.asarray(channel_rows(np.square(rounded - weight), spec).sum(axis=1))
