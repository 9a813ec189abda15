"""`workers`: calibration on several workers gives the very same scales as on one."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from tvm import IRModule

from tvm_quant.bench import options
from tvm_quant.bench.configs import DEFAULT
from tvm_quant.bench.measure import Scale, Subject
from tvm_quant.bench.processes import fresh_processes
from tvm_quant.bench.report import Sheet, number, publish
from tvm_quant.ir import bindings
from tvm_quant.ir.signature import main_function
from tvm_quant.lists import count, listed
from tvm_quant.op import is_calibrated, is_simulated, scale_of

Scales = dict[str, tuple[bytes, bytes]]


EXECUTORS: dict[str, Callable[[int], Any]] = {
    "none": lambda _count: nullcontext(),
    "threads": ThreadPoolExecutor,
    "processes": fresh_processes,
}


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """One calibration.

    Attributes:
        executor, workers: what it ran on.
        seconds: from the float module to calibrated quantizers.
        quantizers: how many have scales.
        different: how many of their scales or zero points differ from those without an executor.
    """

    workload: str
    executor: str
    workers: int
    seconds: float
    quantizers: int
    different: int


def workers(
    only: options.Only = None,
    config: Annotated[str, typer.Option(help="Configuration to calibrate with.")] = DEFAULT,
    counts: Annotated[str, typer.Option(help="Numbers of workers, joined by commas.")] = "1,2",
    calibration: options.Calibration = options.DEFAULT_CALIBRATION,
    json: options.Json = None,
    markdown: options.Markdown = None,
) -> None:
    """Calibrate on one and on several workers, in threads and in processes, and compare scales."""
    scale = Scale(calibration=calibration, latency_rounds=0)
    runs = [("none", 1)]
    numbers = listed("--counts", counts, count)
    runs += [(name, number) for name in ("threads", "processes") for number in numbers]
    results = options.for_each(only or ["resnet20"], scale, lambda s: compare(s, config, runs))
    records = [dataclasses.asdict(result) for result in results]
    publish(_sheet(results), records, json, markdown)


def compare(subject: Subject, name: str, runs: list[tuple[str, int]]) -> list[Calibrated]:
    """Calibrate on each of the executors; the first one is what the others are compared with."""
    config = dataclasses.replace(subject.config(name), simulate=True)
    results, first = [], None
    for executor_name, size in runs:
        started = time.perf_counter()
        with EXECUTORS[executor_name](size) as executor:
            scales = scales_of(subject.quantize(config, executor=executor, reuse=False))
        first = first or scales
        results.append(
            Calibrated(
                workload=subject.workload.name,
                executor=executor_name,
                workers=size,
                seconds=time.perf_counter() - started,
                quantizers=len(scales),
                different=sum(scales.get(key) != value for key, value in first.items()),
            )
        )
    return results


def scales_of(mod: IRModule) -> Scales:
    """The bits of scale and zero point of each quantizer."""
    return {
        str(binding.var.name): (scale.tobytes(), zero_point.tobytes())
        for binding in bindings(main_function(mod))
        if is_simulated(binding.value) and is_calibrated(binding.value)
        for scale, zero_point in (scale_of(binding.value),)
    }


def _sheet(results: list[Calibrated]) -> Sheet:
    return Sheet(
        columns=("<network", "<executor", "workers", "seconds", "quantizers", "different"),
        rows=[
            [
                result.workload,
                result.executor,
                str(result.workers),
                number(result.seconds, 1),
                str(result.quantizers),
                str(result.different),
            ]
            for result in results
        ],
    )
