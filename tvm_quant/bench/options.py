"""Options that several commands share, and the loop over networks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from tvm_quant.bench.measure import CALIBRATION_SAMPLES, Scale, Subject
from tvm_quant.bench.places import Places
from tvm_quant.bench.report import stderr
from tvm_quant.bench.workloads import WORKLOADS, Workload
from tvm_quant.errors import TvmQuantError
from tvm_quant.lists import matching

T = TypeVar("T")

Only = Annotated[
    list[str] | None,
    typer.Option(metavar="PATTERN", help="Networks to measure: names or shell patterns."),
]
Configs = Annotated[
    str,
    typer.Option(
        help="Configurations, joined by commas; each is made of parts joined by '+': 'default', an "
        "estimator, FIELD=VALUE."
    ),
]
Evaluation = Annotated[
    int | None, typer.Option("--eval", min=1, help="Samples to measure on at most; all without.")
]
Calibration = Annotated[
    int, typer.Option("--calib", min=1, help="Samples to calibrate on at most.")
]
Rounds = Annotated[int, typer.Option(min=0, help="Timed runs of each module; 0 times nothing.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write all numbers to this file.")]
Markdown = Annotated[Path | None, typer.Option("--markdown", help="Write the table to this file.")]

DEFAULT_CALIBRATION = CALIBRATION_SAMPLES


def select(patterns: Sequence[str] | None) -> list[Workload]:
    """The rows that match one of the patterns; without patterns all but those with traps.

    Raises:
        ConfigError: a pattern matches nothing.
    """
    if not patterns:
        return [row for row in WORKLOADS.values() if not row.name.startswith("edge/")]
    return [WORKLOADS[name] for name in matching(patterns, WORKLOADS)]


def for_each(
    patterns: Sequence[str] | None,
    scale: Scale,
    work: Callable[[Subject], Sequence[T]],
    keep: Callable[[Sequence[T]], None] | None = None,
) -> list[T]:
    """Do something with each selected network; one that fails is reported and left out.

    A long run may be cut short: after each network, `keep` is given all results so far.
    """
    places, console = Places.default(), stderr()
    results: list[T] = []
    for row in select(patterns):
        started = time.perf_counter()
        try:
            with console.status(f"{row.name} ..."):
                results += work(Subject(row, places, scale))
        except TvmQuantError as error:
            console.print(f"[yellow]skipped[/] {row.name}: {error}", markup=True)
            continue
        if keep is not None:
            keep(results)
        console.print(f"{row.name}: measured in {time.perf_counter() - started:.0f} s")
    return results
