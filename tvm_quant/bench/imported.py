"""`imported`: networks that another tool quantized, here and in the runtime of their format.

Both get the same random codes. The table says how many elements of the outputs differ, and the
latencies of both, measured in turns: of the computation, with the inputs in place.
"""

from __future__ import annotations

import dataclasses
import pickle
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from tvm_quant.backend import Runner
from tvm_quant.bench import options
from tvm_quant.bench.measure import Latency
from tvm_quant.bench.report import Sheet, latency, number, publish, stderr
from tvm_quant.bench.samples import Array
from tvm_quant.bench.tools import onnxruntime_session
from tvm_quant.bench.turns import latencies
from tvm_quant.errors import ConfigError
from tvm_quant.frontend import load
from tvm_quant.ir import io_signature
from tvm_quant.quantize import quantize


class LiteRt:
    """A file in LiteRT with its default kernels."""

    def __init__(self, file: Path, threads: int):
        from ai_edge_litert.interpreter import Interpreter

        self._interpreter = Interpreter(model_path=str(file), num_threads=threads)
        self._interpreter.allocate_tensors()

    def set_inputs(self, feed: Mapping[str, Array]) -> None:
        """Inputs in the order of the file."""
        for detail, value in zip(self._interpreter.get_input_details(), feed.values(), strict=True):
            self._interpreter.set_tensor(detail["index"], value)

    def invoke(self) -> None:
        """Compute."""
        self._interpreter.invoke()

    def outputs(self) -> list[Array]:
        """Results of the last run."""
        details = self._interpreter.get_output_details()
        return [self._interpreter.get_tensor(detail["index"]) for detail in details]


class OnnxRuntime:
    """A file in ONNX Runtime with its default optimizations."""

    def __init__(self, file: Path, threads: int):
        self._session = onnxruntime_session(file, threads)
        self._binding = self._session.io_binding()
        for output in self._session.get_outputs():
            self._binding.bind_output(output.name)

    def set_inputs(self, feed: Mapping[str, Array]) -> None:
        """Inputs in the order of the file."""
        for info, value in zip(self._session.get_inputs(), feed.values(), strict=True):
            self._binding.bind_cpu_input(info.name, value)

    def invoke(self) -> None:
        """Compute."""
        self._session.run_with_iobinding(self._binding)

    def outputs(self) -> list[Array]:
        """Results of the last run."""
        return list(self._binding.copy_outputs_to_cpu())


class Ours:
    """A pickled `Runner`."""

    def __init__(self, file: Path, _threads: int):
        self._runner: Runner = pickle.loads(file.read_bytes())

    def set_inputs(self, feed: Mapping[str, Array]) -> None:
        """Inputs by name."""
        self._call = self._runner.prepared(feed)

    def invoke(self) -> None:
        """Compute."""
        self._call()


#: {ending of a file: (the runtime of its format, what runs the file)}.
RUNTIMES: dict[str, tuple[str, type[LiteRt] | type[OnnxRuntime]]] = {
    ".tflite": ("LiteRT", LiteRt),
    ".onnx": ("ONNX Runtime", OnnxRuntime),
}


def invocations(
    system: type[LiteRt] | type[OnnxRuntime] | type[Ours],
    file: Path,
    feed: Mapping[str, Array],
    threads: int,
) -> Callable[[], object]:
    """Runs on inputs that are in place already."""
    network = system(file, threads)
    network.set_inputs(feed)
    return network.invoke


@dataclass(frozen=True, kw_only=True)
class Imported:
    """One file in both.

    Attributes:
        runtime: of the file's format.
        differing, elements: of the outputs of all samples.
        ours, theirs: latency of one sample whose inputs are in place.
    """

    network: str
    runtime: str
    differing: int
    elements: int
    ours: Latency
    theirs: Latency


def imported(
    files: Annotated[list[Path], typer.Argument(help="Quantized .tflite and .onnx files.")],
    samples: Annotated[int, typer.Option(min=1, help="Random inputs to compare on.")] = 20,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each system.")] = 20,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each system.")] = 1,
    json: options.Json = None,
    markdown: options.Markdown = None,
) -> None:
    """Compare networks that are quantized already with the runtime of their format."""
    results = []
    for file in files:
        if file.suffix not in RUNTIMES:
            known = ", ".join(RUNTIMES)
            raise ConfigError(f"No runtime to compare {file} with; expected a file of {known}.")
        with stderr().status(f"{file.name} ..."):
            results.append(compare(file, samples=samples, rounds=rounds, threads=threads))
    publish(_sheet(results), [dataclasses.asdict(one) for one in results], json, markdown)


def compare(file: Path, *, samples: int, rounds: int, threads: int) -> Imported:
    """Outputs and latencies of one file."""
    name, system = RUNTIMES[file.suffix]
    module = quantize(*load(file))
    runner, theirs = Runner(module), system(file, threads)
    rng = np.random.default_rng(0)
    feeds = [
        {put.name: _codes(rng, put.shape, put.dtype) for put in io_signature(module)}
        for _ in range(samples)
    ]
    differing = elements = 0
    for feed in feeds:
        theirs.set_inputs(feed)
        theirs.invoke()
        for got, expected in zip(runner.run(feed), theirs.outputs(), strict=True):
            differing, elements = differing + int((got != expected).sum()), elements + got.size
    with tempfile.TemporaryDirectory() as folder:
        compiled = Path(folder) / "runner.pickle"
        compiled.write_bytes(pickle.dumps(runner))
        systems = {"ours": (partial(invocations, Ours), compiled)}
        systems["theirs"] = (partial(invocations, system), file)
        found = latencies(systems, feeds[0], threads=threads, rounds=rounds)
    return Imported(
        network=file.stem,
        runtime=name,
        differing=differing,
        elements=elements,
        **found,
    )


def _codes(rng: np.random.Generator, shape: tuple[int | None, ...], dtype: str) -> Array:
    sizes = [size or 1 for size in shape]
    if not np.issubdtype(dtype, np.integer):
        return rng.uniform(-1, 1, sizes).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, sizes, dtype=dtype, endpoint=True)


def _sheet(results: list[Imported]) -> Sheet:
    return Sheet(
        columns=("<network", "<runtime", "differing", "of", "ms tvm_quant", "ms runtime", "ratio"),
        rows=[
            [
                one.network,
                one.runtime,
                str(one.differing),
                str(one.elements),
                latency(one.ours),
                latency(one.theirs),
                number(one.theirs.median / one.ours.median, 2),
            ]
            for one in results
        ],
    )
