"""`memory`: peak memory of calibration does not grow with the number of samples."""

from __future__ import annotations

import dataclasses
import resource
import time
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tvm_quant.bench import options
from tvm_quant.bench.configs import DEFAULT
from tvm_quant.bench.measure import Scale, Subject
from tvm_quant.bench.places import Places, UnavailableError
from tvm_quant.bench.processes import fresh_processes
from tvm_quant.bench.report import Sheet, number, publish
from tvm_quant.bench.workloads import WORKLOADS


@dataclass(frozen=True, kw_only=True)
class Peak:
    """One quantization in a process of its own.

    Attributes:
        samples: calibrated on.
        peak_mb: largest resident memory of the process, 10^6 bytes.
        seconds: from the model file to the int8 module.
    """

    workload: str
    config: str
    samples: int
    peak_mb: float
    seconds: float


Name = Annotated[str, typer.Option("--config", help="Configuration to quantize with.")]


def memory(
    only: options.Only = None,
    config: Name = DEFAULT,
    few: Annotated[int, typer.Option(min=1, help="The smaller number of samples.")] = 32,
    many: Annotated[int, typer.Option(min=1, help="The larger number of samples.")] = 512,
    json: options.Json = None,
    markdown: options.Markdown = None,
) -> None:
    """Compare peak memory of few and many calibration samples, each in a process of its own."""
    scale = Scale(calibration=many, latency_rounds=0)
    pairs = options.for_each(only or ["resnet20"], scale, lambda s: [_pair(s, config, few, many)])
    records = [dataclasses.asdict(peak) for pair in pairs for peak in pair]
    publish(_sheet(pairs), records, json, markdown)


def measure(name: str, config: str, samples: int) -> Peak:
    """Quantize one network; to be called in a process of its own."""
    started = time.perf_counter()
    subject = Subject(WORKLOADS[name], Places.default(), Scale(calibration=samples))
    subject.quantize(subject.config(config))
    return Peak(
        workload=name,
        config=config,
        samples=len(subject.calibration),
        peak_mb=peak_bytes() / 1e6,
        seconds=time.perf_counter() - started,
    )


def peak_bytes() -> int:
    """Largest resident memory of this process.

    Linux's own count for this program: getrusage also counts the parent as it was at the fork.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _pair(subject: Subject, config: str, few: int, many: int) -> tuple[Peak, Peak]:
    name = subject.workload.name
    return _in_process(name, config, few), _in_process(name, config, many)


def _in_process(name: str, config: str, samples: int) -> Peak:
    with fresh_processes(1) as pool:
        try:
            return pool.submit(measure, name, config, samples).result()
        except BrokenProcessPool as error:  # killed, most often for its memory
            raise UnavailableError(f"quantizing with {samples} samples failed: {error}") from None


def _sheet(pairs: list[tuple[Peak, Peak]]) -> Sheet:
    return Sheet(
        columns=("<network", "<config", "samples", "peak MB", "samples", "peak MB", "more %"),
        rows=[
            [
                few.workload,
                few.config,
                str(few.samples),
                number(few.peak_mb, 0),
                str(many.samples),
                number(many.peak_mb, 0),
                number(100 * (many.peak_mb / few.peak_mb - 1), 1),
            ]
            for few, many in pairs
        ],
    )
