"""`speed`: latencies beside those of other systems, measured in turns on the same machine.

Each system runs in a process of its own. They take turns in short slices, so that what else the
machine does meets all of them alike; medians and their ratios are told.
"""

from __future__ import annotations

import fnmatch
import importlib.util
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import typer

from tvm_quant.bench import options
from tvm_quant.bench.measure import Latency
from tvm_quant.bench.places import Places
from tvm_quant.bench.plot import draw_speed
from tvm_quant.bench.processes import CONTEXT
from tvm_quant.bench.report import (
    Sheet,
    latency,
    number,
    stderr,
    stdout,
    write_json,
    write_markdown,
)
from tvm_quant.bench.samples import Array, Column, InMemory, Samples
from tvm_quant.bench.systems import SYSTEMS, System
from tvm_quant.bench.workloads import WORKLOADS
from tvm_quant.bench.zoo import ZOO
from tvm_quant.errors import ConfigError, TvmQuantError

REFERENCE = "tvm_quant int8"
CALIBRATION = 8  # samples: values do not change the time
SLICE_MS = 100.0


@dataclass(frozen=True, kw_only=True)
class Speed:
    """The latency of one network in one system."""

    network: str
    system: str
    latency: Latency

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"network": self.network, "system": self.system, **vars(self.latency)}


def speed(
    only: options.Only = None,
    systems: Annotated[
        str, typer.Option(help=f"Of {', '.join(SYSTEMS)}: patterns, joined by commas.")
    ] = "*",
    threads: Annotated[int, typer.Option(min=1, help="Threads of each system.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each system.")] = 20,
    json: options.Json = None,
    markdown: options.Markdown = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw a bar for each system to this PNG or SVG file.")
    ] = None,
) -> None:
    """Compare latencies with ONNX Runtime and OpenVINO, where they are installed."""
    chosen, results, console = _available(systems), list[Speed](), stderr()
    for name in _networks(only):
        try:
            with console.status(f"{name} ..."):
                results += measure(name, chosen, threads=threads, rounds=rounds)
        except TvmQuantError as error:
            console.print(f"[yellow]skipped[/] {name}: {error}", markup=True)
            continue
        _save(results, json, markdown, plot)
    stdout().print(speed_sheet(results).rich())


def _save(
    results: Sequence[Speed], json: Path | None, markdown: Path | None, plot: Path | None
) -> None:
    """Keep what is known so far: a long run may be cut short."""
    if json is not None:
        write_json(json, [result.to_dict() for result in results])
    if markdown is not None:
        write_markdown(markdown, speed_sheet(results))
    shares = ratios(results)
    if plot is not None and shares:
        draw_speed(plot, shares)


def measure(name: str, systems: Sequence[System], *, threads: int, rounds: int) -> list[Speed]:
    """The latency of one sample of one network in each system."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        model, samples = _case(name, Path(folder))
        feed = next(samples.batches(1))
        turns = [
            stack.enter_context(
                _turns(system, system.prepare(model, samples, Path(folder)), feed, threads)
            )
            for system in systems
        ]
        times: list[list[float]] = [[] for _ in turns]
        for _ in range(rounds):
            for found, turn in zip(times, turns, strict=True):
                found += next(turn)
    return [
        Speed(network=name, system=system.name, latency=Latency.of(found))
        for system, found in zip(systems, times, strict=True)
    ]


def ratios(results: Sequence[Speed]) -> dict[str, dict[str, float]]:
    """{network: {system: its median over that of tvm_quant in int8}}, and the geometric mean."""
    medians: dict[str, dict[str, float]] = {}
    for result in results:
        medians.setdefault(result.network, {})[result.system] = result.latency.median
    found = {
        network: {system: value / times[REFERENCE] for system, value in times.items()}
        for network, times in medians.items()
        if REFERENCE in times
    }
    systems = dict.fromkeys(result.system for result in results)
    if found:
        found["geometric mean"] = {
            system: float(np.exp(np.mean([np.log(row[system]) for row in found.values()])))
            for system in systems
        }
    return found


def speed_sheet(results: Sequence[Speed]) -> Sheet:
    """One line per network, the latency of each system and its ratio to ours."""
    systems = list(dict.fromkeys(result.system for result in results))
    shares = ratios(results)
    shown = {(result.network, result.system): latency(result.latency) for result in results}
    rows = []
    for network in [*dict.fromkeys(result.network for result in results), "geometric mean"]:
        row = [network]
        for system in systems:
            row.append(shown.get((network, system), ""))
            row.append(number(shares.get(network, {}).get(system), 2))
        rows.append(row)
    heads = [head for system in systems for head in (f"{system} ms", "ratio")]
    return Sheet(columns=("<network", *heads), rows=rows)


def _available(patterns: str) -> list[System]:
    wanted = [part.strip() for part in patterns.split(",")]
    chosen = [s for s in SYSTEMS.values() if any(fnmatch.fnmatchcase(s.name, w) for w in wanted)]
    if not chosen:
        raise ConfigError(f"no system matches '{patterns}'; there are {', '.join(SYSTEMS)}")
    found = []
    for system in chosen:
        missing = [name for name in system.packages if importlib.util.find_spec(name) is None]
        if missing:
            stderr().print(f"left out {system.name}: pip install {' '.join(missing)}")
        else:
            found.append(system)
    return found


def _networks(patterns: Sequence[str] | None) -> list[str]:
    known = [f"zoo/{name}" for name in ZOO]
    known += [name for name in WORKLOADS if not name.startswith("edge/")]
    found = [n for n in known if any(fnmatch.fnmatchcase(n, p) for p in patterns or ["*"])]
    if not found:
        raise ConfigError(f"no network matches {patterns}; there are {', '.join(known)}")
    return found


def _case(name: str, folder: Path) -> tuple[Path, Samples]:
    """(model file, samples) of a network of the zoo or of `WORKLOADS`."""
    if name.startswith("zoo/"):
        model = ZOO[name.removeprefix("zoo/")]()
        onnx.save(model, folder / "model.onnx")
        shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
        images = np.random.default_rng(0).normal(size=(CALIBRATION, *shape[1:]))
        column = Column(stored=InMemory(images.astype("float32")))
        return folder / "model.onnx", Samples.all_of({model.graph.input[0].name: column})
    row, places = WORKLOADS[name], Places.default()
    return row.model(places), row.calibration(places).limited(CALIBRATION)


@contextmanager
def _turns(
    system: System, file: Path, feed: Mapping[str, Array], threads: int
) -> Iterator[Iterator[list[float]]]:
    """A process that runs a network; each item of the iterator is a slice of its latencies, ms."""
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(
        target=_serve, args=(theirs, system.name, file, dict(feed), threads), daemon=True
    )
    process.start()
    theirs.close()

    def turns() -> Iterator[list[float]]:
        count = 1
        while True:
            ours.send(count)
            times: list[float] = ours.recv()
            count = max(1, int(SLICE_MS / max(float(np.median(times)), 1e-3)))
            yield times

    slices = turns()
    next(slices)  # loads, and warms up
    yield slices
    ours.send(0)
    process.join()


def _serve(
    connection: Connection, system: str, file: Path, feed: Mapping[str, Array], threads: int
) -> None:
    """What the process does: so many runs as it is told, until that is 0."""
    os.environ["TVM_NUM_THREADS"] = str(threads)  # read when TVM starts its first thread
    run = SYSTEMS[system].load(file, threads)
    run(feed)
    while count := connection.recv():
        times = []
        for _ in range(count):
            started = time.perf_counter()
            run(feed)
            times.append((time.perf_counter() - started) * 1e3)
        connection.send(times)
