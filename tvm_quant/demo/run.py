"""`run_demo`: quantize one of the demo networks and print float and int8 side by side."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tvm import IRModule, relax

from tvm_quant.backend import Runner, median_latency_ms
from tvm_quant.demo.base import Request
from tvm_quant.demo.table import DEMOS
from tvm_quant.errors import ConfigError
from tvm_quant.ir import bindings, constant_value, io_signature
from tvm_quant.ir.bindings import flat_operands
from tvm_quant.quantize import quantize
from tvm_quant.report import Evaluation, evaluate

NEXT = """
Next:
  tvm-quant quantize MODEL --data DATA -o out.tvmq    the same for your network
  tvm-quant inspect out.tvmq                          its scales, and what stayed in float
  tutorials/01_quantize_by_hand.py                    every number of this, in NumPy alone
  tutorials/02_quantize_an_onnx_model.py              the Python API"""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a module takes to run."""

    size_bytes: int
    """Weights, biases and tables."""

    latency_ms: float
    """Median over repeated runs of one sample."""


@dataclass(frozen=True, kw_only=True)
class DemoResult:
    """What a demo found."""

    evaluation: Evaluation
    float32: Cost
    int8: Cost


def run_demo(
    console: Console,
    name: str = "digits",
    *,
    data: str | Path | None = None,
    calibration_samples: int = 256,
    evaluation_samples: int = 1000,
    target: str = "llvm",
) -> DemoResult:
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
    console.print(f"{demo.name}: {demo.summary}", highlight=False)
    mod, params = demo.load()
    request = Request(
        folder=Path(data) if data else None,
        calibration=calibration_samples,
        evaluation=evaluation_samples,
    )
    calibration, comparison = demo.data(io_signature(mod), request)
    started = time.perf_counter()
    int8 = quantize(mod, params, calibration)
    console.print(
        f"calibrated on {calibration.samples} samples and quantized in "
        f"{time.perf_counter() - started:.1f} s; compared on {comparison.samples} others\n",
        highlight=False,
    )
    one = {name: array[:1] for name, array in next(iter(comparison)).items()}
    runners = {"float32": Runner(mod, target), "int8": Runner(int8, target)}
    latency = median_latency_ms(runners, one, rounds=30)
    result = DemoResult(
        evaluation=evaluate(runners["float32"], runners["int8"], comparison),
        float32=Cost(size_bytes=_constant_bytes(mod), latency_ms=latency["float32"]),
        int8=Cost(size_bytes=_constant_bytes(int8), latency_ms=latency["int8"]),
    )
    console.print(_table(result))
    console.print(NEXT, highlight=False, soft_wrap=True)
    return result


def _table(result: DemoResult) -> Table:
    found, costs = result.evaluation, (result.float32, result.int8)
    table = Table(box=None, pad_edge=False)
    for column in ("", "float32", "int8"):
        table.add_column(column, justify="right" if column else "left")
    if found.top1_float is not None:
        table.add_row("top-1", f"{found.top1_float:.2%}", f"{found.top1_int8:.2%}")
    table.add_row("weights", *(f"{cost.size_bytes / 1000:.0f} kB" for cost in costs))
    table.add_row("latency of one sample, median", *(f"{cost.latency_ms:.2f} ms" for cost in costs))
    if found.agreement is not None:
        table.add_row("same answer as float32", "", f"{found.agreement:.2%}")
    table.add_row("output SQNR", "", f"{found.output_sqnr_db[0]:.1f} dB")
    return table


def _constant_bytes(mod: IRModule) -> int:
    """Bytes of the constants that calls of `main` use, each counted once."""
    calls = [b.value for b in bindings(mod["main"]) if isinstance(b.value, relax.Call)]
    operands = {operand for call in calls for operand in flat_operands(call)}
    values = (constant_value(operand) for operand in operands)
    return sum(value.nbytes for value in values if value is not None)
