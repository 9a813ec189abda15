"""`TOOLS`: other tools for post-training quantization, one row each.

A tool quantizes a file, and another process may load and run what it makes.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tvm_quant.bench.samples import Array, Feed, Run, Samples


@dataclass(frozen=True, kw_only=True)
class Tool:
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
    Tool(
        name="onnxruntime",
        packages=("onnxruntime", "onnx"),
        quantize=_onnxruntime_quantize,
        load=onnxruntime_load,
    ),
    Tool(
        name="onnxruntime as written",
        packages=("onnxruntime", "onnx"),
        quantize=_onnxruntime_quantize,
        load=functools.partial(onnxruntime_load, integers=False),
    ),
    Tool(
        name="nncf fast",
        packages=("nncf", "openvino"),
        quantize=_nncf_quantize(fast=True),
        load=openvino_load,
    ),
    Tool(
        name="nncf full",
        packages=("nncf", "openvino"),
        quantize=_nncf_quantize(fast=False),
        load=openvino_load,
    ),
)
TOOLS: dict[str, Tool] = {row.name: row for row in _ROWS}
