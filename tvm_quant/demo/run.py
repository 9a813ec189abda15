"""`run_demo`: quantize one of the demo networks and print float and int8 side by side."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from tvm import IRModule, relax

from tvm_quant.backend import Runner
from tvm_quant.dataset import CheckedDataset, as_dataset
from tvm_quant.demo.base import Request
from tvm_quant.demo.table import DEMOS
from tvm_quant.errors import ConfigError
from tvm_quant.ir import constant_value, io_signature
from tvm_quant.quantize import quantize

NEXT = """\
Next:
  tvm-quant quantize MODEL --data DATA -o out.tvmq    the same for your network
  tvm-quant inspect out.tvmq                          its scales, and what stayed in float
  tutorials/01_quantize_by_hand.py                    every number of this, in NumPy alone
  tutorials/02_quantize_an_onnx_model.py              the Python API"""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two networks, float or int8."""

    top1: float | None
    """Share of labels hit, 0 to 1; None where the data have no labels."""

    size_bytes: int
    """Constants of the module."""

    latency_ms: float
    """Median over repeated runs of one batch."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What the demo found."""

    samples: int
    """Samples on which both ran."""

    float32: Side
    int8: Side

    agreement: float
    """Share of samples with the same most likely class, 0 to 1."""

    sqnr_db: float
    """Signal to quantization noise of the first output, in dB."""


def run_demo(
    console: Console,
    name: str = "digits",
    *,
    data: str | Path | None = None,
    calibration_samples: int = 256,
    evaluation_samples: int = 1000,
    target: str = "llvm",
) -> Comparison:
    """Quantize a network of the table `DEMOS`, compare it with float, print what came out.

    Args:
        console: where the report goes.
        name: a row of `DEMOS`.
        data: folder of images, for a network that brings none. Every fourth image calibrates, the
            others compare.
        calibration_samples: samples used at most to calibrate.
        evaluation_samples: samples used at most to compare.
        target: what to compile for.

    Raises:
        ConfigError: no such demo.
        TvmQuantError: a missing package, or unfit data.
    """
    if name not in DEMOS:
        raise ConfigError(f"there is no demo '{name}'; choose one of {', '.join(DEMOS)}")
    demo = DEMOS[name]
    console.print(f"[bold]{demo.name}[/bold]: {demo.summary}", highlight=False)
    mod, params = demo.load()
    request = Request(
        folder=Path(data) if data else None,
        calibration=calibration_samples,
        evaluation=evaluation_samples,
    )
    calibration, evaluation = demo.data(io_signature(mod), request)
    started = time.perf_counter()
    quantized = quantize(mod, params, calibration)
    seconds = time.perf_counter() - started
    console.print(
        f"calibrated on {calibration.samples} samples and quantized in {seconds:.1f} s; "
        f"comparing on {evaluation.samples} others",
        highlight=False,
    )
    result = compare(mod, quantized, evaluation, target)
    console.print(_table(result))
    console.print(NEXT, highlight=False)
    return result


def compare(
    float32: IRModule, int8: IRModule, evaluation: CheckedDataset, target: str
) -> Comparison:
    """Run both modules over the same batches; the first output holds one score per class."""
    runners = [Runner(mod, target) for mod in (float32, int8)]
    right = np.zeros(2)
    same = signal = noise = 0.0
    for batch in evaluation.with_labels():
        exact, close = (np.asarray(r.run(batch.inputs)[0])[: batch.valid] for r in runners)
        answers = [scores.reshape(batch.valid, -1).argmax(1) for scores in (exact, close)]
        same += float((answers[0] == answers[1]).sum())
        signal += float(np.square(exact, dtype=np.float64).sum())
        noise += float(np.square(exact - close, dtype=np.float64).sum())
        if batch.labels is not None:
            right += [(answer == batch.labels[: batch.valid]).sum() for answer in answers]
    first = next(iter(as_dataset(evaluation, evaluation.signature)))
    one = {name: array[:1] for name, array in first.items()}
    sides = [
        Side(
            top1=hits / evaluation.samples if evaluation.labelled else None,
            size_bytes=_constant_bytes(mod),
            latency_ms=_median_ms(lambda runner=runner: runner.run(one)),  # type: ignore[misc]
        )
        for mod, runner, hits in zip((float32, int8), runners, right, strict=True)
    ]
    return Comparison(
        samples=evaluation.samples,
        float32=sides[0],
        int8=sides[1],
        agreement=same / evaluation.samples,
        sqnr_db=10 * float(np.log10(signal / noise)) if noise else float("inf"),
    )


def _table(result: Comparison) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("", "float32", "int8"):
        table.add_column(column, justify="left" if not column else "right")
    sides = (result.float32, result.int8)
    if result.float32.top1 is not None:
        table.add_row("top-1", *(f"{side.top1:.2%}" for side in sides))
    table.add_row("constants", *(f"{side.size_bytes / 1000:.0f} kB" for side in sides))
    table.add_row("latency, batch 1, median", *(f"{side.latency_ms:.3f} ms" for side in sides))
    table.add_row("same answer as float32", "", f"{result.agreement:.2%}")
    table.add_row("SQNR of the output", "", f"{result.sqnr_db:.1f} dB")
    return table


def _constant_bytes(mod: IRModule) -> int:
    """Bytes of all distinct constants of `main`."""
    found: dict[Any, int] = {}

    def visit(expr: relax.Expr) -> None:
        value = constant_value(expr)
        if value is not None:
            found[expr] = value.nbytes

    relax.analysis.post_order_visit(mod["main"].body, visit)
    return sum(found.values())


def _median_ms(run: Callable[[], Any], repeats: int = 50, limit_s: float = 2.0) -> float:
    """Median latency in ms of up to `repeats` runs, after two to warm up."""
    run()
    run()
    times: list[float] = []
    while len(times) < repeats and sum(times) < limit_s:
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e3
