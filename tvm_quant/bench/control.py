"""`control`: accuracy control, and what it costs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import typer

from tvm_quant.bench import options
from tvm_quant.bench.measure import Scale, Subject, quiet
from tvm_quant.bench.places import UnavailableError
from tvm_quant.bench.report import Sheet, number, save, stdout
from tvm_quant.bench.samples import Samples
from tvm_quant.search import AccuracyTarget, Controlled, Fallback, control_accuracy

MAX_DROP = 0.1


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One network.

    Attributes:
        workload: its name.
        found: what accuracy control did.
        samples: validated on.
        seconds: it took, all in all.
    """

    workload: str
    found: Controlled
    samples: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "workload": self.workload,
            "met": self.found.met,
            "float_score": self.found.float_score,
            "float_ms": self.found.float_latency_ms,
            "score": self.found.score,
            "ms": self.found.latency_ms,
            "skip": list(self.found.config.skip),
            "steps": [
                {
                    "group": step.group.name if step.group else None,
                    "score": step.score,
                    "drop": step.drop,
                    "ms": step.latency_ms,
                    "kept": step.kept,
                }
                for step in self.found.steps
            ],
            "samples": self.samples,
            "seconds": self.seconds,
        }


def control(
    only: options.Only = None,
    max_drop: Annotated[float, typer.Option(help="Points of top-1 that may be lost.")] = MAX_DROP,
    fallback: Annotated[
        Fallback, typer.Option(help="What layers are given that cost too much.")
    ] = Fallback.FLOAT,
    evaluation: options.Evaluation = None,
    calibration: options.Calibration = options.DEFAULT_CALIBRATION,
    json: options.Json = None,
    markdown: options.Markdown = None,
) -> None:
    """Give precision back to each network until it keeps its accuracy; tell what that costs."""
    scale = Scale(calibration=calibration, evaluation=evaluation, latency_rounds=0)
    done: list[Outcome] = []

    def measure(subject: Subject) -> list[Outcome]:
        done.append(outcome(subject, max_drop, fallback))
        save([one.to_dict() for one in done], json, markdown, sheet(done), steps_sheet(done))
        return []

    options.for_each(only, scale, measure)
    for table in (sheet(done), steps_sheet(done)):
        stdout().print(table.rich())


def outcome(subject: Subject, max_drop: float, fallback: Fallback) -> Outcome:
    """Accuracy control of one network, validated on the evaluation samples.

    Raises:
        UnavailableError: they have no labels.
    """
    if subject.evaluation.labels is None:
        raise UnavailableError("its evaluation samples have no labels")
    started = time.perf_counter()
    metric = subject.workload.metric
    with quiet():
        found = control_accuracy(
            subject.module,
            None,
            subject.calibration,
            subject.config("default"),
            target=AccuracyTarget(
                metric=metric.score if metric else "top1",
                max_drop=max_drop,
                data=_Labelled(subject.evaluation),
                fallback=fallback,
            ),
        )
    return Outcome(
        workload=subject.workload.name,
        found=found,
        samples=len(subject.evaluation),
        seconds=time.perf_counter() - started,
    )


class _Labelled:
    """Samples with their labels, one at a time, as often as wanted."""

    def __init__(self, samples: Samples):
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        for inputs, label in zip(self.samples, self.samples.labels, strict=True):
            yield {**inputs, "label": np.asarray(label)[None]}


def sheet(found: list[Outcome]) -> Sheet:
    """One line for each network."""
    return Sheet(
        title="Networks",
        columns=(
            "<network",
            "float",
            "int8",
            "drop",
            "controlled",
            "drop",
            "groups given back",
            "ms float",
            "ms int8",
            "ms controlled",
            "seconds",
            "samples",
        ),
        rows=[
            [
                one.workload,
                number(one.found.float_score, 2),
                number(one.found.steps[0].score, 2),
                number(one.found.steps[0].drop, 2),
                number(one.found.score, 2),
                number(one.found.float_score - one.found.score, 2),
                str(sum(step.kept and step.group is not None for step in one.found.steps)),
                number(one.found.float_latency_ms, 2),
                number(one.found.steps[0].latency_ms, 2),
                number(one.found.latency_ms, 2),
                number(one.seconds, 0),
                str(one.samples),
            ]
            for one in found
        ],
    )


def steps_sheet(found: list[Outcome]) -> Sheet:
    """One line for each network that was judged."""
    return Sheet(
        title="Steps",
        columns=("<network", "<given back", "score", "drop", "ms", "<kept"),
        rows=[
            [
                one.workload,
                step.group.name if step.group else "nothing",
                number(step.score, 2),
                number(step.drop, 2),
                number(step.latency_ms, 2),
                "yes" if step.kept else "no",
            ]
            for one in found
            for step in one.found.steps
        ],
    )
