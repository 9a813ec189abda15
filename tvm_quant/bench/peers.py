"""`peers`: the same networks and samples through other tools for post-training quantization."""

from __future__ import annotations

import fnmatch
import functools
import importlib.util
import logging
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from tvm_quant.bench import options
from tvm_quant.bench.configs import DEFAULT
from tvm_quant.bench.measure import Latency, Result, Scale, Subject
from tvm_quant.bench.places import UnavailableError
from tvm_quant.bench.report import publish, results_sheet, stderr
from tvm_quant.bench.samples import Array, Samples

Feed = Mapping[str, Array]
Run = Callable[[Feed], list[Array]]


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Another tool, with the settings that its authors advise for CPUs.

    Attributes:
        name: as results show it.
        packages: modules that it needs.
        quantize: from (model file, calibration samples, batch, folder to work in) to the file.
        load: from a quantized file and a number of threads (1 by default) to what runs it.
    """

    name: str
    packages: tuple[str, ...]
    quantize: Callable[[Path, Samples, int, Path], Path]
    load: Callable[..., Run]

    def measure(self, subject: Subject) -> Result:
        """Quantize and compare with float.

        Raises:
            UnavailableError: a package is missing, or the tool fails on this network.
        """
        missing = [name for name in self.packages if importlib.util.find_spec(name) is None]
        if missing:
            raise UnavailableError(f"{self.name} needs: pip install {' '.join(missing)}")
        with tempfile.TemporaryDirectory() as folder:
            try:
                return self._measure(subject, Path(folder))
            except Exception as error:  # whatever a foreign tool raises
                raise UnavailableError(
                    f"{self.name} fails: {type(error).__name__}: {error}"
                ) from error

    def _measure(self, subject: Subject, folder: Path) -> Result:
        model = subject.workload.model(subject.places)
        started = time.perf_counter()
        file = self.quantize(model, subject.calibration, subject.batch, folder)
        quantize_s = time.perf_counter() - started
        run = self.load(file)
        runs = [run(batch) for batch in subject.evaluation.batches(subject.batch)]
        count = len(subject.evaluation)
        outputs = [np.concatenate(column)[:count] for column in zip(*runs, strict=True)]
        batch = next(subject.evaluation.batches(subject.batch))
        return subject.compare(
            self.name,
            outputs,
            int8_bytes=sum(path.stat().st_size for path in _files(file)),
            profile_s=0.0,
            quantize_s=quantize_s,
            compile_s=0.0,
            float_ms=None,
            int8_ms=_latency(run, batch, subject.scale.latency_rounds),
        )


PER_CHANNEL_OPSET = 13

# ONNX Runtime -------------------------------------------------------------------


def _onnxruntime_quantize(model: Path, samples: Samples, batch: int, folder: Path) -> Path:
    return onnxruntime_static(onnxruntime_prepared(model, folder), samples, batch, folder)


def onnxruntime_prepared(model: Path, folder: Path) -> Path:
    """The model with shapes, in an opset that knows scales per channel."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared = folder / "prepared.onnx"
    quant_pre_process(str(_modern(model, folder)), str(prepared))
    return prepared


def onnxruntime_static(prepared: Path, samples: Samples, batch: int, folder: Path) -> Path:
    """Static quantization to QDQ: uint8 activations, int8 weights per channel, min-max."""
    import onnxruntime.quantization as ort

    class Reader(ort.CalibrationDataReader):
        def __init__(self) -> None:
            self.batches = samples.batches(batch)

        def get_next(self) -> Feed | None:
            return next(self.batches, None)

    target = folder / "int8.onnx"
    ort.quantize_static(
        str(prepared),
        str(target),
        Reader(),
        quant_format=ort.QuantFormat.QDQ,
        per_channel=True,
        activation_type=ort.QuantType.QUInt8,
        weight_type=ort.QuantType.QInt8,
        calibrate_method=ort.CalibrationMethod.MinMax,
        extra_options={"WeightSymmetric": True},
    )
    return target


def _modern(model: Path, folder: Path) -> Path:
    """The model in an opset that knows scales per channel."""
    import onnx
    from onnx import version_converter

    proto = onnx.load(model)
    opset = next(entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx"))
    if opset >= PER_CHANNEL_OPSET:
        return model
    target = folder / "modern.onnx"
    onnx.save(version_converter.convert_version(proto, PER_CHANNEL_OPSET), target)
    return target


def onnxruntime_load(file: Path, threads: int = 1, *, integers: bool = True) -> Run:
    """Run with ONNX Runtime; see `onnxruntime_session`."""
    session = onnxruntime_session(file, threads, integers=integers)
    return lambda feed: [np.asarray(value) for value in session.run(None, dict(feed))]


def onnxruntime_session(file: Path, threads: int = 1, *, integers: bool = True) -> Any:
    """A file, ready to run on the CPU.

    Without VNNI its integer kernels add pairs of products in 16 bits that saturate. Without
    integers, the quantized network runs as written, in float, and shows what VNNI would compute.
    """
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    if not integers:
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
    return onnxruntime.InferenceSession(str(file), settings, providers=["CPUExecutionProvider"])


# NNCF on OpenVINO ---------------------------------------------------------------


def _nncf_quantize(*, fast: bool) -> Callable[[Path, Samples, int, Path], Path]:
    def quantize(model: Path, samples: Samples, batch: int, folder: Path) -> Path:
        import nncf
        import openvino

        nncf.set_log_level(logging.ERROR)
        # convert_model folds what read_model leaves open; NNCF finds no biases otherwise.
        quantized = nncf.quantize(
            openvino.convert_model(str(model)),
            nncf.Dataset(list(samples.batches(batch))),
            subset_size=-(-len(samples) // batch),
            target_device=nncf.TargetDevice.CPU,
            preset=nncf.QuantizationPreset.MIXED,
            fast_bias_correction=fast,
        )
        target = folder / "int8.xml"
        openvino.save_model(quantized, str(target), compress_to_fp16=False)
        return target

    return quantize


def openvino_load(file: Path, threads: int = 1) -> Run:
    """Run with OpenVINO, in the precision of the file."""
    import openvino

    core = openvino.Core()
    settings: dict[str, Any] = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = core.compile_model(core.read_model(str(file)), "CPU", settings)
    request = compiled.create_infer_request()

    def run(feed: Feed) -> list[Array]:
        result = request.infer(dict(feed), share_inputs=True)
        return [np.array(result[port]) for port in compiled.outputs]

    return run


_ROWS = (
    Peer(
        name="onnxruntime",
        packages=("onnxruntime", "onnx"),
        quantize=_onnxruntime_quantize,
        load=onnxruntime_load,
    ),
    Peer(
        name="onnxruntime as written",
        packages=("onnxruntime", "onnx"),
        quantize=_onnxruntime_quantize,
        load=functools.partial(onnxruntime_load, integers=False),
    ),
    Peer(
        name="nncf fast",
        packages=("nncf", "openvino"),
        quantize=_nncf_quantize(fast=True),
        load=openvino_load,
    ),
    Peer(
        name="nncf full",
        packages=("nncf", "openvino"),
        quantize=_nncf_quantize(fast=False),
        load=openvino_load,
    ),
)
PEERS: dict[str, Peer] = {row.name: row for row in _ROWS}


# The command --------------------------------------------------------------------


def peers(
    only: options.Only = None,
    configs: options.Configs = DEFAULT,
    tools: Annotated[str, typer.Option(help=f"Of {', '.join(PEERS)}: patterns.")] = "*",
    evaluation: options.Evaluation = None,
    calibration: options.Calibration = options.DEFAULT_CALIBRATION,
    rounds: options.Rounds = 20,
    json: options.Json = None,
    markdown: options.Markdown = None,
) -> None:
    """Compare with ONNX Runtime and NNCF/OpenVINO, where they are installed."""
    scale = Scale(calibration=calibration, evaluation=evaluation, latency_rounds=rounds)

    def measure(subject: Subject) -> list[Result]:
        results = [subject.measure(name) for name in configs.split(",") if name != "none"]
        for peer in PEERS.values():
            if any(fnmatch.fnmatchcase(peer.name, tool) for tool in tools.split(",")):
                results += _tried(peer, subject)
        return results

    results = options.for_each(only, scale, measure)
    records = [result.to_dict() for result in results]
    publish(results_sheet(results), records, json, markdown)


def _tried(peer: Peer, subject: Subject) -> list[Result]:
    try:
        return [peer.measure(subject)]
    except UnavailableError as error:
        stderr().print(f"[yellow]skipped[/] {subject.workload.name}: {error}")
        return []


def _files(file: Path) -> list[Path]:
    """The file, and the weights beside an OpenVINO network."""
    return [path for path in (file, file.with_suffix(".bin")) if path.exists()]


def _latency(run: Run, batch: Feed, rounds: int) -> Latency | None:
    if not rounds:
        return None
    times = []
    for _ in range(rounds + 3):
        started = time.perf_counter()
        run(batch)
        times.append((time.perf_counter() - started) * 1e3)
    return Latency.of(times[3:])
