"""`imported`: networks that another tool quantized, here and in the runtime of their format.

Both get the same random codes. The table says how many elements of the outputs differ, and the
latencies of both, measured in turns.
"""

from __future__ import annotations

import dataclasses
import pickle
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from tvm_quant.backend import Runner
from tvm_quant.bench import options
from tvm_quant.bench.measure import Latency
from tvm_quant.bench.peers import Run, onnxruntime_load
from tvm_quant.bench.report import Sheet, latency, number, publish, stderr
from tvm_quant.bench.samples import Array
from tvm_quant.bench.systems import Load
from tvm_quant.bench.turns import turns_of
from tvm_quant.errors import ConfigError
from tvm_quant.frontend import load
from tvm_quant.ir import io_signature
from tvm_quant.quantize import quantize


def litert_load(file: Path, threads: int) -> Run:
    """Run a file in LiteRT with its default kernels."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(file), num_threads=threads)
    interpreter.allocate_tensors()
    inputs = [detail["index"] for detail in interpreter.get_input_details()]
    outputs = [detail["index"] for detail in interpreter.get_output_details()]

    def run(feed: Mapping[str, Array]) -> list[Array]:
        for index, value in zip(inputs, feed.values(), strict=True):
            interpreter.set_tensor(index, value)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in outputs]

    return run


#: {ending of a file: the runtime of its format, and how it loads the file}.
RUNTIMES: dict[str, tuple[str, Load]] = {
    ".tflite": ("LiteRT", litert_load),
    ".onnx": ("ONNX Runtime", onnxruntime_load),
}


@dataclass(frozen=True, kw_only=True)
class Imported:
    """One file in both.

    Attributes:
        runtime: of the file's format.
        differing, elements: of the outputs of all samples.
        ours, theirs: latency of one sample.
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
    name, load_theirs = RUNTIMES[file.suffix]
    module = quantize(*load(file))
    runner, theirs = Runner(module), load_theirs(file, threads)
    rng = np.random.default_rng(0)
    feeds = [
        {put.name: _codes(rng, put.shape, put.dtype) for put in io_signature(module)}
        for _ in range(samples)
    ]
    pairs = [pair for feed in feeds for pair in zip(runner.run(feed), theirs(feed), strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        compiled = Path(folder) / "runner.pickle"
        compiled.write_bytes(pickle.dumps(runner))
        times: tuple[list[float], list[float]] = ([], [])
        with ExitStack() as stack:
            turns = [
                stack.enter_context(turns_of(how, what, feeds[0], threads))
                for how, what in ((load_runner, compiled), (load_theirs, file))
            ]
            for _ in range(rounds):
                for found, turn in zip(times, turns, strict=True):
                    found += next(turn)
    return Imported(
        network=file.stem,
        runtime=name,
        differing=sum(int((got != expected).sum()) for got, expected in pairs),
        elements=sum(got.size for got, _ in pairs),
        ours=Latency.of(times[0]),
        theirs=Latency.of(times[1]),
    )


def load_runner(file: Path, _threads: int) -> Run:
    """Our side: a pickled `Runner`."""
    runner: Runner = pickle.loads(file.read_bytes())
    return runner.run


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
