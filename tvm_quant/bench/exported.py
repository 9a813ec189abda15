"""`exported`: our quantized networks, written as ONNX and run by ONNX Runtime.

Once as written, quantizers in float between float operators, and once with the integer kernels that
it fuses them to.
"""

from __future__ import annotations

import dataclasses
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from tvm_quant.backend import Runner
from tvm_quant.bench import options
from tvm_quant.bench.configs import DEFAULT
from tvm_quant.bench.measure import Scale, Subject
from tvm_quant.bench.report import Sheet, number, publish
from tvm_quant.bench.samples import Array
from tvm_quant.bench.tools import onnxruntime_load
from tvm_quant.export import export_qdq


@dataclass(frozen=True, kw_only=True)
class Exported:
    """One network here and in ONNX Runtime.

    Attributes:
        samples: that all ran on.
        score, float_score, integer_score: points of our integers, and of the exported model in
            ONNX Runtime as written and with its integer kernels; None without labels.
        agree, integer_agree: samples with our class, in percent.
    """

    workload: str
    config: str
    samples: int
    score: float | None
    float_score: float | None
    integer_score: float | None
    agree: float
    integer_agree: float


def exported(
    only: options.Only = None,
    config: Annotated[str, typer.Option(help="Configuration to quantize with.")] = DEFAULT,
    evaluation: options.Evaluation = None,
    calibration: options.Calibration = options.DEFAULT_CALIBRATION,
    json: options.Json = None,
    markdown: options.Markdown = None,
) -> None:
    """Compare each int8 network with what ONNX Runtime computes of its export."""
    scale = Scale(calibration=calibration, evaluation=evaluation, latency_rounds=0)
    results = options.for_each(only, scale, lambda subject: [compare(subject, config)])
    publish(_sheet(results), [dataclasses.asdict(one) for one in results], json, markdown)


def compare(subject: Subject, name: str) -> Exported:
    """Run all evaluation samples through the three."""
    config = subject.config(name)
    simulated = subject.quantize(dataclasses.replace(config, simulate=True))
    ours = subject.outputs(Runner(subject.quantize(config)).run)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        export_qdq(simulated, path)
        theirs = [
            subject.outputs(onnxruntime_load(path, integers=integers)) for integers in (False, True)
        ]
    labels, metric = subject.evaluation.labels, subject.workload.metric
    scores = [
        metric.score(outputs, labels) if metric and labels is not None else None
        for outputs in (ours, *theirs)
    ]
    agree = [100 * float(np.mean(_classes(ours) == _classes(outputs))) for outputs in theirs]
    return Exported(
        workload=subject.workload.name,
        config=name,
        samples=len(subject.evaluation),
        score=scores[0],
        float_score=scores[1],
        integer_score=scores[2],
        agree=agree[0],
        integer_agree=agree[1],
    )


def _classes(outputs: list[Array]) -> Array:
    return np.asarray(outputs[0].reshape(len(outputs[0]), -1).argmax(axis=1))


def _sheet(results: list[Exported]) -> Sheet:
    score = partial(number, digits=2)
    return Sheet(
        columns=(
            "<network",
            "<config",
            "samples",
            "tvm_quant",
            "ONNX Runtime as written",
            "agree",
            "ONNX Runtime's integers",
            "agree",
        ),
        rows=[
            [
                one.workload,
                one.config,
                str(one.samples),
                score(one.score),
                score(one.float_score),
                score(one.agree),
                score(one.integer_score),
                score(one.integer_agree),
            ]
            for one in results
        ],
    )
