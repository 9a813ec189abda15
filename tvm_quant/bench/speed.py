"""`speed`: latencies beside those of other systems, measured in turns on the same machine.

Medians and their ratios are told, and how much of the CPU's peak tvm_quant reaches.
"""

from __future__ import annotations

import functools
import importlib.util
import pickle
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tvm_quant.bench import cases, options
from tvm_quant.bench.contractions import contractions
from tvm_quant.bench.layer_times import LayerTime, layer_times
from tvm_quant.bench.peak import peak_gops
from tvm_quant.bench.plot import draw_speed
from tvm_quant.bench.processes import fresh_processes
from tvm_quant.bench.report import Sheet, save, stderr, stdout
from tvm_quant.bench.samples import Array
from tvm_quant.bench.speed_report import (
    REFERENCE,
    Speed,
    gain_sheets,
    layer_sheets,
    of_threads,
    ratios,
    speed_sheets,
)
from tvm_quant.bench.systems import MODULE, SYSTEMS, System
from tvm_quant.bench.turns import latencies, use_threads, whole_calls
from tvm_quant.errors import TvmQuantError
from tvm_quant.lists import count, listed, matching

CALIBRATION = 8  # samples: values do not change the time


def speed(
    only: options.Only = None,
    systems: Annotated[
        str, typer.Option(help=f"Of {', '.join(SYSTEMS)}: patterns, joined by commas.")
    ] = "*",
    threads: Annotated[
        str, typer.Option(help="Threads of each system: numbers, joined by commas.")
    ] = "1",
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each system.")] = 20,
    layers: Annotated[
        bool, typer.Option("--layers", help=f"Tell where the time of {REFERENCE} goes.")
    ] = False,
    json: options.Json = None,
    markdown: options.Markdown = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw a bar for each system to this PNG or SVG file.")
    ] = None,
) -> None:
    """Compare latencies with ONNX Runtime and OpenVINO, where they are installed."""
    chosen, counts = _available(systems), listed("--threads", threads, count)
    results, console = list[Speed](), stderr()
    for name in cases.networks(only):
        try:
            with console.status(f"{name} ..."):
                results += measure(name, chosen, threads=counts, rounds=rounds, layers=layers)
        except TvmQuantError as error:
            console.print(f"[yellow]skipped[/] {name}: {error}", markup=True)
            continue
        _save(results, json, markdown, plot)
    for sheet in _sheets(results):
        stdout().print(sheet.rich(), "\n", sep="")


def _save(
    results: Sequence[Speed], json: Path | None, markdown: Path | None, plot: Path | None
) -> None:
    """Keep what is known so far: a long run may be cut short."""
    records = [result.to_dict() for result in results]
    save(records, json, markdown, *_sheets(results))
    shares = ratios(of_threads(results, results[0].threads))
    if plot is not None and shares:
        draw_speed(plot, shares)


def _sheets(results: Sequence[Speed]) -> list[Sheet]:
    return [*speed_sheets(results), *gain_sheets(results), *layer_sheets(results)]


def measure(
    name: str,
    systems: Sequence[System],
    *,
    threads: Sequence[int],
    rounds: int,
    layers: bool = False,
) -> list[Speed]:
    """The latency of one sample of one network in each system, on each number of threads."""
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        model, samples = cases.case(name, folder, CALIBRATION)
        feed = next(samples.batches(1))
        runs = {
            system.name: (
                functools.partial(whole_calls, system.load),
                system.prepare(model, samples, folder),
            )
            for system in systems
        }
        results = []
        for count in threads:
            found = latencies(runs, feed, threads=count, rounds=rounds)
            work = {}
            if REFERENCE in found:
                work[REFERENCE] = _work(folder / MODULE, feed, count, rounds if layers else 0)
            results += [
                Speed(
                    network=name,
                    system=system,
                    threads=count,
                    latency=latency,
                    **work.get(system, {}),
                )
                for system, latency in found.items()
            ]
    return results


def _work(module: Path, feed: Mapping[str, Array], threads: int, rounds: int) -> dict[str, Any]:
    """What the int8 network computes, and how its time divides among layers."""
    layers: list[LayerTime] = []
    if rounds:
        with fresh_processes(1) as pool:
            layers = pool.submit(_layers, module, dict(feed), threads, rounds).result()
    found = contractions(pickle.loads(module.read_bytes()), feed)
    return {
        "operations": sum(layer.operations for layer in found),
        "peak_gops": _peak(threads),
        "layers": layers,
    }


def _layers(module: Path, feed: Mapping[str, Array], threads: int, rounds: int) -> list[LayerTime]:
    use_threads(threads)
    return layer_times(pickle.loads(module.read_bytes()), feed, rounds=rounds)


@functools.cache
def _peak(threads: int) -> float | None:
    """Of so many cores in 1e9 operations per second; None where there is no instruction."""
    try:
        return threads * peak_gops()
    except ValueError:
        return None


def _available(patterns: str) -> list[System]:
    found = []
    for name in matching(listed("--systems", patterns, str), SYSTEMS, "system"):
        system = SYSTEMS[name]
        missing = [name for name in system.packages if importlib.util.find_spec(name) is None]
        if missing:
            stderr().print(f"left out {system.name}: pip install {' '.join(missing)}")
        else:
            found.append(system)
    return found
