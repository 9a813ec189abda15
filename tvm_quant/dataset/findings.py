"""What one pass over the data saw, and what is to be said about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tvm_quant.dataset.batching import Batch
from tvm_quant.ir import TensorInfo


@dataclass
class Findings:
    """What one pass over the data saw."""

    seen: int = 0
    skipped: list[str] = field(default_factory=list)
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)

    def widen(self, run: Batch) -> None:
        """Take in the values of some samples."""
        for name, array in run.inputs.items():
            low, high = float(array.min()), float(array.max())
            old = self.ranges.get(name, (low, high))
            self.ranges[name] = (min(low, old[0]), max(high, old[1]))

    def zero_inputs(self, signature: Sequence[TensorInfo]) -> list[str]:
        """Float inputs that were zero everywhere."""
        floats = [info.name for info in signature if "float" in info.dtype]
        return [name for name in floats if self.ranges.get(name) == (0.0, 0.0)]
