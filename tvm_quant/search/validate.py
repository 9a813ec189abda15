"""Running whole networks on validation data: float once, then any number of quantized ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
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
#: Batches of one task.
CHUNK = 8


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
        self._dataset = dataset
        self.reference, self._labels = self._run(reference)
        self.score = self.score_of(self.reference) if metric else None

    def outputs(self, runner: Runner) -> list[Array]:
        """Each output of a network for all samples, joined along axis 0."""
        return self._run(runner)[0]

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
        return next(self._dataset.with_labels()).inputs

    def _run(self, runner: Runner) -> tuple[list[Array], Array | None]:
        """(outputs, labels) of all samples; labels only if all of them have one."""
        total = -(-self._dataset.batches // CHUNK)
        with closing(ordered_map(_Task(runner=runner), self._work(), self._executor)) as results:
            runs = [
                run
                for part in track(
                    results,
                    "Validation",
                    total=total,
                    console=Console(stderr=True),
                    transient=True,
                    disable=not self._progress,
                )
                for run in part
            ]
        outputs = [np.concatenate(parts) for parts in zip(*(run[0] for run in runs), strict=True)]
        labels = [labels for _, labels in runs if labels is not None]
        return outputs, np.concatenate(labels) if len(labels) == len(runs) else None

    def _work(self) -> Iterator[list[Batch]]:
        batches = self._dataset.with_labels()
        while block := list(islice(batches, CHUNK)):
            yield block


@dataclass(frozen=True, kw_only=True)
class _Task:
    """Runs a network on some batches; can be pickled."""

    runner: Runner

    def __call__(self, batches: Sequence[Batch]) -> list[tuple[list[Array], Array | None]]:
        return [(self._outputs(batch), batch.labels) for batch in batches]

    def _outputs(self, batch: Batch) -> list[Array]:
        outputs = self.runner.run(batch.inputs)
        return [valid_rows(np.atleast_1d(output), batch) for output in outputs]
