"""Measuring a network: float once, then any number of configurations on the same samples.

The network is profiled once for all configurations that differ only in what comes after profiling.
"""

from __future__ import annotations

import dataclasses
import json
import platform
import time
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import IRModule, relax

from tvm_quant import frontend
from tvm_quant.artifact import Provenance
from tvm_quant.backend import Runner
from tvm_quant.bench.configs import config_of
from tvm_quant.bench.metrics import agreement
from tvm_quant.bench.places import Places
from tvm_quant.bench.samples import Array, Run, Samples
from tvm_quant.bench.workloads import Workload
from tvm_quant.config import BiasCorrection, QuantizeConfig, WeightRounding
from tvm_quant.dataset import CheckedDataset, as_dataset
from tvm_quant.ir import constant_value, io_signature
from tvm_quant.quantize import quantize
from tvm_quant.report import sqnr_db
from tvm_quant.statistics import Statistics
from tvm_quant.transform import Prepare

CALIBRATION_SAMPLES = 256

#: Fields of a configuration that take effect after profiling.
AFTER_PROFILE = (
    "activation_estimator",
    "weight_estimator",
    "estimator_options",
    "per_channel",
    "bias_correction",
    "bias_samples",
    "weight_rounding",
    "match_channel_scales",
    "global_scale",
    "power_of_two_scales",
    "requantize",
    "simulate",
    "nbit_weight",
)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much of the data is used, and how often a latency is measured.

    Attributes:
        calibration: samples at most.
        evaluation: samples at most; None is all.
        latency_rounds: timed runs of each module; 0 leaves latencies out.
    """

    calibration: int = CALIBRATION_SAMPLES
    evaluation: int | None = None
    latency_rounds: int = 20


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Wall time of one batch in milliseconds, over turns of float and int8."""

    median: float
    p10: float
    p90: float

    @classmethod
    def of(cls, times: list[float]) -> Latency:
        """From single measurements."""
        p10, median, p90 = np.percentile(times, [10, 50, 90])
        return cls(median=float(median), p10=float(p10), p90=float(p90))


@dataclass(frozen=True, kw_only=True)
class Result:
    """One configuration on one network.

    Attributes:
        workload, config: names.
        metric: name of the metric; None without.
        samples: evaluated; calibration: calibrated on.
        float_score, int8_score: points, 0 to 100.
        agreement: points; same class as float.
        sqnr_db: of each output.
        float_bytes, int8_bytes: of the constants in the module.
        profile_s: running the network over the calibration samples, with compiling for it; 0 where
            statistics were reused.
        quantize_s: everything else until the int8 module is there.
        compile_s: from there to machine code.
        float_ms, int8_ms: latencies, measured in turns.
        batch: samples of a latency.
    """

    workload: str
    config: str
    metric: str | None
    samples: int
    calibration: int
    float_score: float | None
    int8_score: float | None
    agreement: float | None
    sqnr_db: list[float]
    float_bytes: int
    int8_bytes: int
    profile_s: float
    quantize_s: float
    compile_s: float
    float_ms: Latency | None = None
    int8_ms: Latency | None = None
    batch: int

    @property
    def drop(self) -> float | None:
        """Points that int8 loses."""
        if self.float_score is None or self.int8_score is None:
            return None
        return self.float_score - self.int8_score

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return dataclasses.asdict(self)


class Subject:
    """A network under measurement: its float side is computed once and kept.

    Args:
        workload: the row.
        places: where models and data are.
        scale: how much to measure.
    """

    def __init__(self, workload: Workload, places: Places, scale: Scale):
        self.workload = workload
        self.places = places
        self.scale = scale
        self._statistics: dict[str, Statistics] = {}

    @cached_property
    def calibration(self) -> Samples:
        """Samples to calibrate on."""
        return self.workload.calibration(self.places).limited(self.scale.calibration)

    @cached_property
    def evaluation(self) -> Samples:
        """Samples to measure on."""
        return self.workload.evaluation(self.places).limited(self.scale.evaluation)

    @cached_property
    def _checked(self) -> CheckedDataset:
        config = self.config("default")
        return as_dataset(
            self.calibration,
            io_signature(self.module),
            on_bad=config.on_bad,
            on_zero=config.on_zero,
        )

    @cached_property
    def module(self) -> IRModule:
        """The float network after Prepare."""
        mod, params = frontend.load(self.workload.model(self.places))
        prepared: IRModule = tvm.transform.Sequential([Prepare(params)])(mod)
        return prepared

    @cached_property
    def batch(self) -> int:
        """Samples of one run."""
        shape = io_signature(self.module)[0].shape
        fixed = shape[0] if shape else None
        return fixed or self.workload.batch

    @cached_property
    def float_runner(self) -> Runner:
        """The compiled float network."""
        return Runner(self.module)

    @cached_property
    def float_outputs(self) -> list[Array]:
        """Each output for all evaluation samples, along axis 0."""
        return self.outputs(self.float_runner.run)

    def outputs(self, run: Run) -> list[Array]:
        """Each output for all evaluation samples, along axis 0."""
        runs = [run(batch) for batch in self.evaluation.batches(self.batch)]
        return [
            np.concatenate(column)[: len(self.evaluation)] for column in zip(*runs, strict=True)
        ]

    def config(self, name: str, **fields: Any) -> QuantizeConfig:
        """A configuration by name, with what the network needs."""
        return config_of(name, {**self.workload.config, **fields})

    def quantize(
        self, config: QuantizeConfig, *, executor: Executor | None = None, reuse: bool = True
    ) -> IRModule:
        """The int8 network; profiles unless a like configuration has, or without `reuse`."""
        statistics = Statistics()
        if reuse:
            statistics = self._statistics.setdefault(profile_key(config), statistics)
        with quiet():
            return quantize(
                self.module,
                None,
                self._checked,
                config,
                executor=executor,
                statistics=statistics,
            )

    def measure(self, name: str) -> Result:
        """Quantize with a configuration and compare with float, in time as well."""
        runner, result = self.build(name)
        float_ms, int8_ms = self._latencies(runner)
        return dataclasses.replace(result, float_ms=float_ms, int8_ms=int8_ms)

    def build(self, name: str) -> tuple[Runner, Result]:
        """Quantize with a configuration and compare its outputs with those of float."""
        config = self.config(name)
        profile_s = self._profile(config)
        started = time.perf_counter()
        int8 = self.quantize(config)
        quantize_s = time.perf_counter() - started
        started = time.perf_counter()
        runner = Runner(int8)
        compile_s = time.perf_counter() - started
        result = self.compare(
            name,
            self.outputs(runner.run),
            int8_bytes=constant_bytes(int8),
            profile_s=profile_s,
            quantize_s=quantize_s,
            compile_s=compile_s,
        )
        return runner, result

    def compare(self, config: str, outputs: list[Array], **costs: Any) -> Result:
        """What `outputs` are worth against float; `costs` are the other fields of the result."""
        metric, labels = self.workload.metric, self.evaluation.labels
        if labels is None:
            metric = None
        return Result(
            workload=self.workload.name,
            config=config,
            metric=metric.name if metric else None,
            samples=len(self.evaluation),
            calibration=len(self.calibration),
            float_score=metric.score(self.float_outputs, labels) if metric else None,
            int8_score=metric.score(outputs, labels) if metric else None,
            agreement=agreement(self.float_outputs, outputs),
            sqnr_db=[sqnr_db(a, b) for a, b in zip(self.float_outputs, outputs, strict=True)],
            float_bytes=constant_bytes(self.module),
            batch=self.batch,
            **costs,
        )

    def _profile(self, config: QuantizeConfig) -> float:
        """Fill the statistics, by the cheapest configuration that needs the same ones."""
        if profile_key(config) in self._statistics:
            return 0.0
        started = time.perf_counter()
        cheap = dataclasses.replace(
            config,
            activation_estimator="minmax",
            bias_correction=BiasCorrection.NONE,
            weight_rounding=WeightRounding.NEAREST,
            simulate=True,
        )
        self.quantize(cheap)
        return time.perf_counter() - started

    def _latencies(self, runner: Runner) -> tuple[Latency | None, Latency | None]:
        if not self.scale.latency_rounds:
            return None, None
        batch = next(self.evaluation.batches(self.batch))
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(self.scale.latency_rounds):
            for target, one in zip(times, (self.float_runner, runner), strict=True):
                target += one.latency_ms(batch, repeats=1)
        return Latency.of(times[0]), Latency.of(times[1])


def profile_key(config: QuantizeConfig) -> str:
    """Equal for configurations that can share statistics."""
    fields = {key: value for key, value in config.to_dict().items() if key not in AFTER_PROFILE}
    return json.dumps(fields, sort_keys=True)


def constant_bytes(mod: IRModule) -> int:
    """Bytes of the constants in a module, each counted once."""
    found: dict[Any, int] = {}

    def visit(expr: relax.Expr) -> None:
        value = constant_value(expr)
        if value is not None:
            found[expr] = value.nbytes

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return sum(found.values())


def environment() -> Mapping[str, Any]:
    """Versions and machine, for the record."""
    return {**Provenance.now().versions, "machine": platform.machine(), "cpu": _cpu()}


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings that a measurement provokes on purpose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else "unknown"
