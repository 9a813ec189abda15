"""`builds`: the kernels of this package against the build that TVM makes without them.

The integers of a network are settled; how they are computed must not change one of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import tvm
import typer
from tvm import IRModule, relax

from tvm_quant.backend import Runner, host_target
from tvm_quant.bench import options
from tvm_quant.bench.configs import DEFAULT
from tvm_quant.bench.measure import Scale, Subject
from tvm_quant.bench.report import Sheet, number, save, stdout
from tvm_quant.bench.samples import Array
from tvm_quant.ir import io_signature


@dataclass(frozen=True, kw_only=True)
class Builds:
    """Two builds of one int8 network.

    Attributes:
        samples: that both ran on.
        score, plain_score: points of the scheduled and of TVM's own build; None without labels.
        different: elements of all outputs that differ, of `elements`.
    """

    workload: str
    config: str
    samples: int
    score: float | None
    plain_score: float | None
    different: int
    elements: int


def builds(
    only: options.Only = None,
    config: Annotated[str, typer.Option(help="Configuration to quantize with.")] = DEFAULT,
    evaluation: options.Evaluation = None,
    calibration: options.Calibration = options.DEFAULT_CALIBRATION,
    json: options.Json = None,
    markdown: options.Markdown = None,
) -> None:
    """Compare each int8 network with TVM's own build of it: accuracy, and every single output."""
    scale = Scale(calibration=calibration, evaluation=evaluation, latency_rounds=0)

    def keep(done: Sequence[Builds]) -> None:
        save([dataclasses.asdict(one) for one in done], json, markdown, _sheet(done))

    found = options.for_each(only, scale, lambda subject: [compare(subject, config)], keep)
    stdout().print(_sheet(found).rich())


def compare(subject: Subject, name: str) -> Builds:
    """Run all evaluation samples through both builds."""
    int8 = subject.quantize(subject.config(name))
    runner, build = Runner(int8), _PlainBuild(int8)
    ours, plain = subject.outputs(runner.run), subject.outputs(build.run)
    metric, labels = subject.workload.metric, subject.evaluation.labels
    scores = [
        metric.score(outputs, labels) if metric and labels is not None else None
        for outputs in (ours, plain)
    ]
    return Builds(
        workload=subject.workload.name,
        config=name,
        samples=len(subject.evaluation),
        score=scores[0],
        plain_score=scores[1],
        different=sum(int(np.count_nonzero(a != b)) for a, b in zip(ours, plain, strict=True)),
        elements=sum(output.size for output in ours),
    )


class _PlainBuild:
    """A module as TVM compiles it without this package."""

    def __init__(self, mod: IRModule):
        self._main = relax.VirtualMachine(tvm.compile(mod, host_target()), tvm.cpu())["main"]
        self._names = [info.name for info in io_signature(mod)]

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Results of one execution."""
        result = self._main(*[tvm.runtime.tensor(inputs[name]) for name in self._names])
        fields = [result] if isinstance(result, tvm.runtime.Tensor) else result
        return [field.numpy() for field in fields]


def _sheet(results: Sequence[Builds]) -> Sheet:
    return Sheet(
        columns=(
            "<network",
            "<config",
            "samples",
            "int8",
            "TVM's build",
            "elements",
            "different",
        ),
        rows=[
            [
                result.workload,
                result.config,
                str(result.samples),
                number(result.score, 2),
                number(result.plain_score, 2),
                str(result.elements),
                str(result.different),
            ]
            for result in results
        ],
    )
