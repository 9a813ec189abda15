"""Running whole networks on validation data: float once, then any number of quantized ones."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import track
from tvm import IRModule

from tvm_quant.backend import Runner
from tvm_quant.dataset import CheckedDataset
from tvm_quant.dataset.batching import Batch
from tvm_quant.report import Metric
from tvm_quant.report.evaluate import valid_rows
from tvm_quant.report.metrics import require_labels
from tvm_quant.search.noise import noise_to_signal
from tvm_quant.transform.profiling import ordered_map

Array = npt.NDArray[Any]
#: Tasks that the batches are cut into, at most.
TASKS = 16


class Validation:
    """Data that networks are judged on.

    Args:
        reference: the float network.
        dataset: the data.
        metric: what counts; None for the noise at the outputs.
        executor: runs batches.
        progress: show a bar.

    Attributes:
        reference: the outputs of the float network, each joined along axis 0.
        score: its metric; None without.
    """

    def __init__(
        self,
        reference: Runner,
        dataset: CheckedDataset,
        metric: Metric | None,
        *,
        executor: Executor | None = None,
        progress: bool = False,
    ):
        if metric is not None:
            require_labels(metric, dataset)
        self.metric = metric
        self._executor = executor
        self._progress = progress
        self._batches = list(dataset.with_labels())
        labels = [batch.labels for batch in self._batches if batch.labels is not None]
        self._labels = np.concatenate(labels) if len(labels) == len(self._batches) else None
        self.reference = self.outputs(reference)
        self.score = self.score_of(self.reference) if metric else None

    def outputs(self, runner: Runner) -> list[Array]:
        """Each output of a network for all samples, joined along axis 0."""
        size = -(-len(self._batches) // TASKS)
        starts = range(0, len(self._batches), size)
        work = [self._batches[start : start + size] for start in starts]
        with closing(ordered_map(_Task(runner=runner), work, self._executor)) as results:
            runs = [
                run
                for part in track(
                    results,
                    "Validation",
                    total=len(work),
                    console=Console(stderr=True),
                    transient=True,
                    disable=not self._progress,
                )
                for run in part
            ]
        return [np.concatenate(parts) for parts in zip(*runs, strict=True)]

    def score_of(self, outputs: Sequence[Array]) -> float:
        """The metric of outputs."""
        assert self.metric is not None
        return self.metric.score(self.reference, outputs, self._labels)

    def loss(self, mod: IRModule) -> float:
        """What a network loses of the metric, or its noise over the signal at the outputs."""
        outputs = self.outputs(Runner(mod))
        if self.score is None:
            return noise_to_signal(self.reference, outputs)
        return self.score - self.score_of(outputs)

    @property
    def inputs(self) -> dict[str, Array]:
        """Of one batch, for measuring latencies."""
        return self._batches[0].inputs


@dataclass(frozen=True, kw_only=True)
class _Task:
    """Runs a network on some batches; can be pickled."""

    runner: Runner

    def __call__(self, batches: Sequence[Batch]) -> list[list[Array]]:
        return [
            [valid_rows(np.atleast_1d(output), batch) for output in self.runner.run(batch.inputs)]
            for batch in batches
        ]
