"""Profile: run the float network over a data set once and gather statistics of every quantizer.

Before    statistics = Statistics()
After     statistics["lv7"] is the TensorStatistics of the operand of `simulated_quantize(lv7)`

The module is returned as it is. Needs Annotate. Statistics of bounded size are gathered batch by
batch in chunks; chunks can run on any executor and are merged in order, so the result has the same
bits with one worker or many.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import Executor
from contextlib import closing, contextmanager

import tvm
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from threadpoolctl import threadpool_limits
from tvm import IRModule

from tvm_quant.config import BadData
from tvm_quant.dataset import CheckedDataset
from tvm_quant.dataset.check import is_batched
from tvm_quant.errors import CalibrationError
from tvm_quant.ir import io_signature, tapped
from tvm_quant.ir.signature import main_function
from tvm_quant.statistics import Statistics, Thinning
from tvm_quant.transform.profiling import (
    Batch,
    ProfileTask,
    Worker,
    chunks,
    fingerprint,
    ordered_map,
    profiled_tensors,
)
from tvm_quant.transform.quantizers import strip_quantizers
from tvm_quant.transform.range_records import CalibrationWarning
from tvm_quant.transform.weight_rounding import (
    LayerInputs,
    LayerReading,
    Moments,
    Reading,
    add_reads,
    weight_layers,
)


@tvm.transform.module_pass(opt_level=0, name="Profile")
class Profile:
    """Fill `statistics` with one pass over `dataset`.

    Args:
        dataset: batches {input name: array} that fit the inputs of `main`; read once.
        statistics: what is gathered is merged into it.
        executor: any `concurrent.futures.Executor`: threads, processes, a Dask client's. None works
            in a thread for each core, up to four. It is not shut down.
        progress: show a progress bar on standard error.
        chunk: batches per task. Sums of channels depend on it in their last bits, on the number of
            workers they do not.
        on_bad: what to do with batches that make NaN or Inf anywhere in the network.
        counts: whether to gather more than the extremes of each sample.
        inputs: learns what the layers read of some samples, for RoundWeights.
        target: what to run the network on.
    """

    def __init__(
        self,
        dataset: Iterable[Batch],
        statistics: Statistics,
        *,
        executor: Executor | None = None,
        progress: bool = False,
        chunk: int = 8,
        on_bad: BadData = BadData.ERROR,
        counts: bool = True,
        inputs: LayerInputs | None = None,
        target: str = "llvm",
    ):
        self.dataset = dataset
        self.statistics = statistics
        self.executor = executor
        self.progress = progress
        self.chunk = chunk
        self.on_bad = on_bad
        self.counts = counts
        self.inputs = inputs
        self.target = target

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """Run the pass."""
        tensors = profiled_tensors(mod)
        if not tensors:
            return mod
        names = [tensor.name for tensor in tensors]
        layers = self._layers(mod, names)
        task = ProfileTask(
            worker=Worker(tapped(strip_quantizers(mod), names), self.target),
            tensors=tuple(tensors),
            on_bad=self.on_bad,
            fingerprint=fingerprint(mod),
            thinning=Thinning.of_samples(_samples(self.dataset)) if self.counts else None,
            reading=Reading(operands=tuple(names), layers=tuple(layers.values())),
        )
        moments = {name: Moments() for name in layers}
        # Threads work on samples side by side; those of BLAS would wait for them.
        with threadpool_limits(1, user_api="blas"):
            self._run(task, moments, batched=is_batched(io_signature(mod)))
        if self.inputs is not None:
            self.inputs.moments.update({name: m.finished() for name, m in moments.items()})
        return mod

    def _layers(self, mod: IRModule, tapped_names: list[str]) -> dict[str, LayerReading]:
        """How the layers read whose moments are wanted."""
        if self.inputs is None:
            return {}
        readings = {
            name: layer.reading for name, layer in weight_layers(main_function(mod)).items()
        }
        return {name: r for name, r in readings.items() if r.operand in tapped_names}

    def _run(self, task: ProfileTask, moments: dict[str, Moments], *, batched: bool) -> None:
        skipped: list[str] = []
        seen = 0
        work = chunks(self.dataset, self.chunk, batched=batched)
        with self._bar() as advance, closing(ordered_map(task, work, self.executor)) as results:
            for result in results:
                self.statistics.merge(result.statistics)
                for reads in result.reads:
                    add_reads(moments, reads)
                skipped += result.skipped
                seen += result.samples
                advance(result.batches)
        self._judge(seen, skipped)

    def _judge(self, seen: int, skipped: list[str]) -> None:
        if not seen:
            raise CalibrationError(
                "The calibration data is empty: not one batch to profile. An iterator that was "
                "read before is exhausted; pass a list or a data set that can be read again."
            )
        if not self.statistics.samples:
            raise CalibrationError(f"No calibration sample is usable. {skipped[0]}")
        if skipped:
            warnings.warn(
                f"Left out {len(skipped)} calibration batch(es). {skipped[0]}",
                CalibrationWarning,
                stacklevel=2,
            )

    @contextmanager
    def _bar(self) -> Iterator[Callable[[int], None]]:
        """A function that advances the bar by a number of batches."""
        columns = (
            TextColumn("Profiling"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("batches"),
            TimeRemainingColumn(),
        )
        console = Console(stderr=True)
        total = len(self.dataset) if isinstance(self.dataset, Sized) else None
        with Progress(*columns, console=console, transient=True, disable=not self.progress) as bar:
            row = bar.add_task("", total=total)
            yield lambda batches: bar.advance(row, batches)


def _samples(dataset: Iterable[Batch]) -> int:
    """How many samples there are; 0 where that is unknown."""
    return dataset.samples if isinstance(dataset, CheckedDataset) else 0
