"""What counts for a network: a score in points, 0 to 100, from its outputs and the labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tvm_quant.bench.detection import decode_fastestdet, mean_average_precision
from tvm_quant.bench.samples import Array


class Metric(Protocol):
    """A row's measure of quality."""

    @property
    def name(self) -> str:
        """Heading in tables."""

    def score(self, outputs: Sequence[Array], labels: Any) -> float:
        """Points, 0 to 100.

        Args:
            outputs: each with the samples along axis 0.
            labels: those of the samples.
        """


@dataclass(frozen=True, kw_only=True)
class Top1:
    """Share of samples whose class has the highest score.

    Attributes:
        columns: classes that may be chosen, in the order of the labels; all without.
    """

    name: str = "top-1"
    columns: tuple[int, ...] | None = None

    def score(self, outputs: Sequence[Array], labels: Any) -> float:
        """Points, 0 to 100. Labels: integer, (samples,)."""
        scores = outputs[0].reshape(len(outputs[0]), -1)
        if self.columns is not None:
            scores = scores[:, list(self.columns)]
        return 100.0 * float(np.mean(scores.argmax(1) == np.asarray(labels)))


@dataclass(frozen=True, kw_only=True)
class FastestDetAp50:
    """Mean average precision at IoU 0.5. Labels: per image (boxes, 5), class and box."""

    name: str = "AP50"

    def score(self, outputs: Sequence[Array], labels: Any) -> float:
        """Points, 0 to 100."""
        found = [decode_fastestdet(output) for output in outputs[0]]
        return 100.0 * mean_average_precision(found, labels)


def agreement(reference: Sequence[Array], actual: Sequence[Array]) -> float | None:
    """Share of samples, in points, for which the first output has its maximum at the same class.

    None if the first output is no table of scores.
    """
    first, second = reference[0], actual[0]
    if first.ndim != 2 or first.shape[1] < 2:
        return None
    return 100.0 * float(np.mean(first.argmax(1) == second.argmax(1)))
