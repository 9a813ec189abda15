"""One task of profiling: run a few batches, return their statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.config import BadData
from tvm_quant.errors import CalibrationError
from tvm_quant.statistics import BatchExtremes, Statistics, TensorCollector, Thinning
from tvm_quant.transform.calibration_samples import SAMPLES, Choice
from tvm_quant.transform.profiling.graph import ProfiledTensor
from tvm_quant.transform.profiling.worker import Worker

Array = npt.NDArray[Any]
Batch = Mapping[str, Array]


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Batches of one task.

    Attributes:
        first: index of the first sample.
        batches: (inputs, number of samples, whether chosen to be read) in order.
    """

    first: int
    batches: list[tuple[Batch, int, bool]]


@dataclass(frozen=True, kw_only=True)
class Profiled:
    """Result of one task.

    Attributes:
        statistics: of the good batches.
        samples, batches: how many the task was given.
        skipped: why each bad batch was left out.
        reads: what was read of each good chosen batch.
    """

    statistics: Statistics
    samples: int
    batches: int
    skipped: list[str]
    reads: list[Any]


@dataclass(frozen=True, kw_only=True)
class ProfileTask:
    """What every task needs; can be pickled.

    Attributes:
        worker: gives the values of `tensors` in order.
        tensors: what to gather.
        on_bad: what to do with a batch whose values are not finite.
        fingerprint: of the network.
        thinning: how much of each sample is counted; None: nothing, only extremes are gathered.
        reading: what else to take of the values of chosen batches.
    """

    worker: Worker
    tensors: tuple[ProfiledTensor, ...]
    on_bad: BadData
    fingerprint: str
    thinning: Thinning | None
    reading: Callable[[Sequence[Array]], Any]

    def __call__(self, chunk: Chunk) -> Profiled:
        """Gather the statistics of one chunk.

        Raises:
            CalibrationError: a value is NaN or Inf, and such batches are not to be skipped.
        """
        collectors = [TensorCollector(axis=t.axis, thinning=self.thinning) for t in self.tensors]
        skipped: list[str] = []
        reads: list[Any] = []
        first, good = chunk.first, 0
        for batch, samples, chosen in chunk.batches:
            values = self.worker.run(batch)
            extremes = [
                BatchExtremes.of(value, samples=samples, axis=tensor.axis)
                for value, tensor in zip(values, self.tensors, strict=True)
            ]
            bad = self._what_is_bad(extremes, first)
            first += samples
            if bad is not None:
                if self.on_bad is BadData.ERROR:
                    raise CalibrationError(bad)
                skipped.append(bad)
                continue
            good += samples
            for collector, extreme in zip(collectors, extremes, strict=True):
                collector.add_checked(extreme)
            if chosen:
                reads.append(self.reading(values))
        statistics = Statistics(
            {t.name: c.statistics() for t, c in zip(self.tensors, collectors, strict=True)},
            samples=good,
            fingerprint=self.fingerprint,
        )
        return Profiled(
            statistics=statistics,
            samples=first - chunk.first,
            batches=len(chunk.batches),
            skipped=skipped,
            reads=reads,
        )

    def _what_is_bad(self, extremes: list[BatchExtremes], first: int) -> str | None:
        for extreme, tensor in zip(extremes, self.tensors, strict=True):
            sample = extreme.non_finite()
            if sample is not None:
                what = "NaN" if np.isnan(extreme.low[sample]) else "Inf"
                return (
                    f"Calibration sample {first + sample} gives {what} in {tensor.where} (shape "
                    f"{extreme.data.shape}). Check the preprocessing and the weights before it; "
                    "leave such samples out with on_bad='skip', or keep the layer in float with "
                    "`skip`."
                )
        return None


def chunks(dataset: Iterable[Batch], size: int, *, batched: bool) -> Iterator[Chunk]:
    """Cut a data set into tasks of `size` batches: always the same ones, whoever works on them.

    Args:
        batched: whether axis 0 of the inputs counts samples.
    """
    first = 0
    batches = iter(dataset)
    choice = Choice(dataset, SAMPLES)
    while block := list(islice(batches, size)):
        sizes = [_samples(batch) if batched else 1 for batch in block]
        sized = [(batch, n, choice.takes(n)) for batch, n in zip(block, sizes, strict=True)]
        yield Chunk(first=first, batches=sized)
        first += sum(sizes)


def _samples(batch: Batch) -> int:
    return len(next(iter(batch.values())))
