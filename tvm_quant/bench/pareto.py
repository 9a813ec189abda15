"""`pareto`: accuracy against the bits of the weights, searched layer by layer."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from tvm_quant.backend import Runner
from tvm_quant.bench import options
from tvm_quant.bench.measure import Result, Scale, Subject, constant_bytes, quiet
from tvm_quant.bench.report import Sheet, number, save, stdout
from tvm_quant.lists import count, listed
from tvm_quant.search import WEIGHT_BITS, Budget, Found, choose, measure_sensitivity
from tvm_quant.search import Subject as Searched

SHARES = "1,0.75,0.6,0.5,0.4"
#: Samples that sensitivities are measured on.
SAMPLES = 32


@dataclass(frozen=True, kw_only=True)
class Point:
    """One budget on one network.

    Attributes:
        budget: share of the bytes of 8-bit weights that was allowed.
        found: what was chosen.
        result: how good it is.
        search_s: measuring the sensitivities, once for all budgets of a network.
    """

    budget: float
    found: Found
    result: Result
    search_s: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            **self.result.to_dict(),
            "budget": self.budget,
            "share": self.found.share,
            "predicted": self.found.predicted,
            "choices": {row.group.name: str(row.choice) for row in self.found.rows},
            "search_s": self.search_s,
        }


def pareto(
    only: options.Only = None,
    shares: Annotated[
        str, typer.Option(help="Budgets: shares of the bytes of 8-bit weights.")
    ] = SHARES,
    bits: Annotated[str, typer.Option(help="Bits of weights to choose from.")] = ",".join(
        map(str, WEIGHT_BITS)
    ),
    evaluation: options.Evaluation = None,
    calibration: options.Calibration = options.DEFAULT_CALIBRATION,
    json: options.Json = None,
    markdown: options.Markdown = None,
) -> None:
    """Search the bits of the weights for several budgets, and measure the accuracy of each."""
    scale = Scale(calibration=calibration, evaluation=evaluation, latency_rounds=0)
    budgets = listed("--shares", shares, float, "shares joined by commas, as 0.6,0.5")
    widths = listed("--bits", bits, count)
    done: list[Point] = []

    def measure(subject: Subject) -> list[Point]:
        for point in points(subject, budgets, widths):
            done.append(point)
            # Keep what is known so far: a long run may be cut short.
            save([one.to_dict() for one in done], json, markdown, sheet(done))
        return []

    options.for_each(only, scale, measure)
    stdout().print(sheet(done).rich())


def points(subject: Subject, budgets: list[float], widths: list[int]) -> Iterator[Point]:
    """A point for each budget."""
    with quiet():
        searched = Searched(subject.module, None, subject.calibration, subject.config("default"))
        started = time.perf_counter()
        sensitivity = measure_sensitivity(searched, weight_bits=widths, samples=SAMPLES)
        search_s = time.perf_counter() - started
        for budget in budgets:
            found = choose(searched.config, sensitivity, Budget(weight_bytes=budget))
            started = time.perf_counter()
            module = searched.quantized(found.config)
            quantize_s = time.perf_counter() - started
            started = time.perf_counter()
            runner = Runner(module)
            result = subject.compare(
                f"{budget:.0%}",
                subject.outputs(runner.run),
                int8_bytes=constant_bytes(module),
                profile_s=0.0,
                quantize_s=quantize_s,
                compile_s=time.perf_counter() - started,
            )
            yield Point(budget=budget, found=found, result=result, search_s=search_s)


def sheet(found: list[Point]) -> Sheet:
    """One line for each network and budget."""
    return Sheet(
        columns=(
            "<network",
            "budget",
            "mean bits",
            "kB weights",
            "<metric",
            "float",
            "quantized",
            "drop",
            "agree",
            "SQNR dB",
            "predicted dB",
            "search s",
            "samples",
        ),
        rows=[_line(point) for point in found],
    )


def _line(point: Point) -> list[str]:
    result, found = point.result, point.found
    return [
        result.workload,
        f"{point.budget:.0%}",
        number(found.share * 8, 2),
        number(sum(row.size_bytes for row in found.rows) / 1000, 0),
        result.metric or "",
        number(result.float_score, 2),
        number(result.int8_score, 2),
        number(result.drop, 2),
        number(result.agreement, 2),
        number(min(result.sqnr_db), 1),
        number(-10 * math.log10(found.predicted) if found.predicted else None, 1),
        number(point.search_s, 0),
        str(result.samples),
    ]
