"""`SYSTEMS`: what runs networks in `speed`, one row each.

A system prepares a file once. A process of its own loads the file and runs it, so that no system
disturbs the threads or the memory of another.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx
import tvm

from tvm_quant.backend import Runner, host_target
from tvm_quant.backend.cpu import isa_of
from tvm_quant.bench.measure import quiet
from tvm_quant.bench.samples import Run, Samples
from tvm_quant.bench.tools import TOOLS, openvino_load
from tvm_quant.config import QuantizeConfig
from tvm_quant.frontend import load
from tvm_quant.quantize import quantize
from tvm_quant.transform import Prepare

MODULE = "int8.module"
"""File in which `tvm_quant int8` leaves its Relax module, pickled."""

#: From a file and a number of threads to a function that runs it.
Load = Callable[[Path, int], Run]


@dataclass(frozen=True, kw_only=True)
class System:
    """Something that runs a network.

    Attributes:
        name: as results show it.
        packages: modules that it needs.
        prepare: from (model file, calibration samples, folder to work in) to the file to load.
        load: from that file and a number of threads to a function that runs it; TVM takes its
            threads from the environment.
    """

    name: str
    packages: tuple[str, ...]
    prepare: Callable[[Path, Samples, Path], Path]
    load: Load


def _ours(model: Path, samples: Samples, folder: Path, *, integers: bool) -> Path:
    mod, params = load(onnx.load(model))
    with quiet():
        if integers:
            row = isa_of(host_target()).hardware
            mod = quantize(mod, params, samples, QuantizeConfig(hardware=row))
            (folder / MODULE).write_bytes(pickle.dumps(mod))
        else:
            mod = tvm.transform.Sequential([Prepare(params)])(mod)
    return save_runner(Runner(mod), folder / f"tvm_quant_{integers}.pickle")


def save_runner(runner: Runner, file: Path) -> Path:
    """Write a compiled network to a file for `load_runner`."""
    file.write_bytes(pickle.dumps(runner))
    return file


def load_runner(file: Path, _threads: int) -> Run:
    """Run a compiled network."""
    runner: Runner = pickle.loads(file.read_bytes())
    return runner.run


def _as_it_is(model: Path, _samples: Samples, _folder: Path) -> Path:
    return model


def _qdq(model: Path, samples: Samples, folder: Path) -> Path:
    """ONNX Runtime's file, made once for all systems that read it."""
    file = folder / "int8.onnx"
    return file if file.exists() else TOOLS["onnxruntime"].quantize(model, samples, 1, folder)


_ROWS = (
    System(
        name="tvm_quant int8",
        packages=(),
        prepare=functools.partial(_ours, integers=True),
        load=load_runner,
    ),
    System(
        name="tvm_quant float",
        packages=(),
        prepare=functools.partial(_ours, integers=False),
        load=load_runner,
    ),
    System(
        name="onnxruntime int8",
        packages=("onnxruntime",),
        prepare=_qdq,
        load=TOOLS["onnxruntime"].load,
    ),
    System(
        name="onnxruntime float",
        packages=("onnxruntime",),
        prepare=_as_it_is,
        load=TOOLS["onnxruntime"].load,
    ),
    System(
        name="openvino int8",
        packages=("onnxruntime", "openvino"),
        prepare=_qdq,
        load=openvino_load,
    ),
    System(name="openvino float", packages=("openvino",), prepare=_as_it_is, load=openvino_load),
)
SYSTEMS: dict[str, System] = {row.name: row for row in _ROWS}
