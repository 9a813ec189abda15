"""Weight scales that are powers of two, so that a shift rescales."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tvm_quant.estimator.affine import ceil_power_of_two, scale_zero_point
from tvm_quant.estimator.base import WeightEstimator, row_extremes
from tvm_quant.op import QuantSpec

Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class PowerOfTwo(WeightEstimator):
    """The largest magnitude, rounded up to a power of two, maps to 2**(bits - 1).

    A magnitude that is a power of two itself needs one code more than there is and loses one step.
    On an asymmetric grid the scale that covers the extremes is rounded up.

    >>> spec = QuantSpec(narrow=True)
    >>> float(PowerOfTwo().weight_scale(np.float32([0.3, -0.7]), spec)[0])
    0.0078125
    """

    name: ClassVar[str] = "power2"
    summary: ClassVar[str] = "largest magnitude, rounded up to a power of two"

    def weight_range(self, rows: Array, spec: QuantSpec) -> tuple[Array, Array]:
        """The range of each row; see `WeightEstimator.weight_range`."""
        return row_extremes(rows)

    def _scales(self, low: Array, high: Array, spec: QuantSpec) -> tuple[Array, Array]:
        if not spec.symmetric:
            return scale_zero_point(low, high, spec, power_of_two=True)
        reach = ceil_power_of_two(np.maximum(-low, high) if spec.signed else high)
        unit = reach / ceil_power_of_two(spec.levels / 2 if spec.signed else spec.levels)
        _, zero_point = scale_zero_point(low, high, spec)
        return np.where(reach > 0, unit, 1.0).astype(np.float32), zero_point
