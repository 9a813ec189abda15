"""`peers`: the same networks and samples through other tools for post-training quantization."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tvm_quant.bench import options
from tvm_quant.bench.configs import DEFAULT
from tvm_quant.bench.measure import Result, Scale, Subject
from tvm_quant.bench.places import UnavailableError
from tvm_quant.bench.report import results_sheet, save, stderr, stdout
from tvm_quant.bench.systems import Load, load_runner, save_runner
from tvm_quant.bench.tools import TOOLS, Tool
from tvm_quant.bench.turns import latencies, whole_calls
from tvm_quant.lists import listed, matching

FLOAT = "float"


def peers(
    only: options.Only = None,
    configs: options.Configs = DEFAULT,
    tools: Annotated[str, typer.Option(help=f"Of {', '.join(TOOLS)}: patterns.")] = "*",
    evaluation: options.Evaluation = None,
    calibration: options.Calibration = options.DEFAULT_CALIBRATION,
    rounds: Annotated[int, typer.Option(min=0, help="Turns of each; 0 times nothing.")] = 20,
    json: options.Json = None,
    markdown: options.Markdown = None,
) -> None:
    """Compare with ONNX Runtime and NNCF/OpenVINO, where they are installed."""
    scale = Scale(calibration=calibration, evaluation=evaluation, latency_rounds=rounds)
    chosen = [TOOLS[name] for name in matching(listed("--tools", tools, str), TOOLS, "tool")]
    names = listed("--configs", configs, str)

    def keep(done: Sequence[Result]) -> None:
        save([result.to_dict() for result in done], json, markdown, results_sheet(done))

    found = options.for_each(only, scale, lambda subject: compare(subject, names, chosen), keep)
    stdout().print(results_sheet(found).rich())


def compare(subject: Subject, configs: Sequence[str], tools: Sequence[Tool]) -> list[Result]:
    """Configurations and tools on one network, their latencies measured in turns.

    A tool that is not installed, or that fails on the network, is reported and left out.
    """
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        built = [
            _quantized(subject, name, folder / f"{index}.pickle")
            for index, name in enumerate(configs)
        ]
        built += _of_tools(subject, tools, folder)
        return _timed(subject, built, folder)


@dataclass(frozen=True, kw_only=True)
class _Built:
    """A quantized network: what it is worth, and the file that another process can run."""

    result: Result
    file: Path
    load: Load


def _quantized(subject: Subject, config: str, file: Path) -> _Built:
    runner, result = subject.build(config)
    return _Built(result=result, file=save_runner(runner, file), load=load_runner)


def _of_tools(subject: Subject, tools: Sequence[Tool], folder: Path) -> Iterator[_Built]:
    for tool in tools:
        place = folder / tool.name
        place.mkdir()
        try:
            yield _of_tool(tool, subject, place)
        except UnavailableError as error:
            stderr().print(f"[yellow]skipped[/] {subject.workload.name}: {error}")


def _of_tool(tool: Tool, subject: Subject, folder: Path) -> _Built:
    """Quantize with another tool, in a folder, and compare with float.

    Raises:
        UnavailableError: a package is missing, or the tool fails on this network.
    """
    missing = [name for name in tool.packages if importlib.util.find_spec(name) is None]
    if missing:
        raise UnavailableError(f"{tool.name} needs: pip install {' '.join(missing)}")
    try:
        model = subject.workload.model(subject.places)
        started = time.perf_counter()
        file = tool.quantize(model, subject.calibration, subject.batch, folder)
        quantize_s = time.perf_counter() - started
        outputs = subject.outputs(tool.load(file))
    except Exception as error:  # whatever a foreign tool raises
        raise UnavailableError(f"{tool.name} fails: {type(error).__name__}: {error}") from error
    result = subject.compare(
        tool.name,
        outputs,
        int8_bytes=sum(path.stat().st_size for path in _files(file)),
        profile_s=0.0,
        quantize_s=quantize_s,
        compile_s=0.0,
    )
    return _Built(result=result, file=file, load=tool.load)


def _files(file: Path) -> list[Path]:
    """The file, and the weights beside an OpenVINO network."""
    return [path for path in (file, file.with_suffix(".bin")) if path.exists()]


def _timed(subject: Subject, built: Sequence[_Built], folder: Path) -> list[Result]:
    """The results with the latencies of one batch on one thread; our float takes turns as well."""
    if not subject.scale.latency_rounds:
        return [one.result for one in built]
    runs = {one.result.config: (one.load, one.file) for one in built}
    runs[FLOAT] = load_runner, save_runner(subject.float_runner, folder / "float.pickle")
    found = latencies(
        {name: (functools.partial(whole_calls, load), file) for name, (load, file) in runs.items()},
        next(subject.evaluation.batches(subject.batch)),
        threads=1,
        rounds=subject.scale.latency_rounds,
    )
    return [
        dataclasses.replace(one.result, float_ms=found[FLOAT], int8_ms=found[one.result.config])
        for one in built
    ]
