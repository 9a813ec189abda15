"""`quantize-time`: how long quantization takes, part by part, and ONNX Runtime beside it."""

from __future__ import annotations

import dataclasses
import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tvm_quant import frontend
from tvm_quant.bench import cases, options
from tvm_quant.bench.measure import quiet
from tvm_quant.bench.memory import peak_bytes
from tvm_quant.bench.processes import fresh_processes
from tvm_quant.bench.report import Sheet, number, publish, stderr
from tvm_quant.bench.samples import Samples
from tvm_quant.bench.tools import onnxruntime_prepared, onnxruntime_static
from tvm_quant.config import BiasCorrection, QuantizeConfig, WeightRounding
from tvm_quant.dataset import as_dataset
from tvm_quant.quantize import data_inputs, pipeline

SHORT_S = 0.1  # parts that take less are not shown


@dataclass(frozen=True, kw_only=True)
class Part:
    """A step.

    Attributes:
        seconds: of wall time.
        cpu_seconds: of all threads together: what the step costs, whatever else the machine does.
    """

    name: str
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True, kw_only=True)
class Quantized:
    """One quantization, from the model file on, in a process of its own.

    Attributes:
        system: what quantized.
        samples: calibrated on.
        parts: in order.
        peak_mb: largest resident memory of the process, 10^6 bytes; it holds the samples.
    """

    network: str
    system: str
    samples: int
    parts: list[Part]
    peak_mb: float

    @property
    def whole(self) -> Part:
        """All parts together."""
        return Part(
            name="",
            seconds=sum(part.seconds for part in self.parts),
            cpu_seconds=sum(part.cpu_seconds for part in self.parts),
        )


class Stopwatch:
    """Times parts one after the other."""

    def __init__(self) -> None:
        self.parts: list[Part] = []

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Times what is done within."""
        started, cpu = time.perf_counter(), time.process_time()
        yield
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
        self.parts.append(Part(name=name, seconds=seconds, cpu_seconds=cpu_seconds))


#: What `quantize_static` does: ranges from extremes, weights rounded to nearest, biases left alone.
MINMAX = QuantizeConfig(
    activation_estimator="minmax",
    weight_rounding=WeightRounding.NEAREST,
    bias_correction=BiasCorrection.NONE,
    match_channel_scales=False,
)


def _tvm_quant(
    config: QuantizeConfig, model: Path, samples: Samples, _folder: Path, watch: Stopwatch
) -> None:
    """The passes of `tvm_quant.quantize`."""
    with watch.part("load"):
        mod, params = frontend.load(model)
        data = as_dataset(samples, data_inputs(mod, params))
    with quiet():
        for step in pipeline(config, params, data):
            with watch.part(str(step.info.name)):
                mod = step(mod)


def _onnxruntime(model: Path, samples: Samples, folder: Path, watch: Stopwatch) -> None:
    """As in `peers`, one sample at a time, on as many threads as there are cores."""
    with watch.part("quant_pre_process"):
        prepared = onnxruntime_prepared(model, folder)
    with watch.part("quantize_static"):
        onnxruntime_static(prepared, samples, 1, folder)


@dataclass(frozen=True, kw_only=True)
class Quantizer:
    """A row of `QUANTIZERS`.

    Attributes:
        package: that has to be there.
        quantize: from (model file, samples, folder to work in, stopwatch).
    """

    package: str
    quantize: Callable[[Path, Samples, Path, Stopwatch], None]


QUANTIZERS: dict[str, Quantizer] = {
    "tvm_quant": Quantizer(package="tvm_quant", quantize=partial(_tvm_quant, QuantizeConfig())),
    "tvm_quant, min-max": Quantizer(package="tvm_quant", quantize=partial(_tvm_quant, MINMAX)),
    "onnxruntime, min-max": Quantizer(package="onnxruntime", quantize=_onnxruntime),
}
"""By the name that results show."""


def quantize_time(
    only: options.Only = None,
    calibration: options.Calibration = options.DEFAULT_CALIBRATION,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each system.")] = 1,
    json: options.Json = None,
    markdown: options.Markdown = None,
) -> None:
    """Compare the time to quantize with ONNX Runtime's, where it is installed.

    Systems take turns, each in a process of its own; the table has the medians.
    """
    results: list[Quantized] = []
    names = cases.networks(only or ["zoo/resnet50"])
    systems = [n for n, row in QUANTIZERS.items() if importlib.util.find_spec(row.package)]
    for name in names:
        for _ in range(rounds):
            for system in systems:
                with stderr().status(f"{name}: {system} ..."), fresh_processes(1) as pool:
                    results.append(pool.submit(measure, name, system, calibration).result())
    records = [dataclasses.asdict(result) for result in results]
    publish(times_sheet(results), records, json, markdown)


def measure(name: str, system: str, samples: int) -> Quantized:
    """Quantize one network; to be called in a process of its own."""
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as path:
        model, data = cases.case(name, Path(path), samples)
        QUANTIZERS[system].quantize(model, data, Path(path), watch)
    return Quantized(
        network=name,
        system=system,
        samples=len(data),
        parts=watch.parts,
        peak_mb=peak_bytes() / 1e6,
    )


def medians(results: Sequence[Quantized]) -> list[Quantized]:
    """One for each network and system, with the median of each figure over the turns."""
    turns: dict[tuple[str, str], list[Quantized]] = {}
    for result in results:
        turns.setdefault((result.network, result.system), []).append(result)
    return [_median(same) for same in turns.values()]


def _median(turns: Sequence[Quantized]) -> Quantized:
    parts = [
        Part(
            name=same[0].name,
            seconds=statistics.median(part.seconds for part in same),
            cpu_seconds=statistics.median(part.cpu_seconds for part in same),
        )
        for same in zip(*(turn.parts for turn in turns), strict=True)
    ]
    peak_mb = statistics.median(turn.peak_mb for turn in turns)
    return dataclasses.replace(turns[0], parts=parts, peak_mb=peak_mb)


def times_sheet(results: Sequence[Quantized]) -> Sheet:
    """A row for each network and system, then one for each of its longer parts."""
    rows: list[list[str]] = []
    for result in medians(results):
        head = [result.network, result.system, str(result.samples)]
        rows.append([*head, "all", *_times(result.whole), number(result.peak_mb, 0)])
        rows += [
            ["", "", "", part.name, *_times(part), ""]
            for part in result.parts
            if part.seconds >= SHORT_S
        ]
    return Sheet(
        columns=("<network", "<system", "samples", "<part", "seconds", "CPU seconds", "peak MB"),
        rows=rows,
    )


def _times(part: Part) -> list[str]:
    return [number(part.seconds, 1), number(part.cpu_seconds, 1)]
