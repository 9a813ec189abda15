"""One assumed range for every tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm_quant.estimator.base import ActivationEstimator, Range
from tvm_quant.op import QuantSpec
from tvm_quant.statistics import TensorStatistics


@dataclass(frozen=True, kw_only=True)
class GlobalScale(ActivationEstimator):
    """[-value, value], whatever the data: for quantization without a dataset."""

    name: ClassVar[str] = "global_scale"
    summary: ClassVar[str] = "one assumed absolute maximum; needs no data"
    needs_statistics: ClassVar[bool] = False
    needs_counts: ClassVar[bool] = False

    #: The assumed absolute maximum, > 0.
    value: float = 8.0

    def __post_init__(self) -> None:
        self._check("value", 1e-30, 1e30)

    def range(self, stats: TensorStatistics | None, spec: QuantSpec) -> Range:
        """The assumed range; `stats` may be None."""
        return Range(low=-self.value, high=self.value)
