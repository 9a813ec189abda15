"""Running systems in turns, each in a process of its own.

The turns are short slices, so that what else the machine does meets all systems alike. Threads of
the system before wait for work for a while before they sleep, and would hold cores: a turn starts
with a pause, and a run to warm up.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from tvm_quant.bench.measure import Latency
from tvm_quant.bench.processes import CONTEXT
from tvm_quant.bench.samples import Array
from tvm_quant.bench.systems import Load

#: From a file, inputs and a number of threads to what runs the network on them, again and again.
Prepare = Callable[[Path, Mapping[str, Array], int], Callable[[], object]]

SLICE_MS = 100.0
SETTLE_S = 0.3  # workers of TVM's pool yield 300,000 times before they sleep


def latencies(
    systems: Mapping[str, tuple[Prepare, Path]],
    feed: Mapping[str, Array],
    *,
    threads: int,
    rounds: int,
) -> dict[str, Latency]:
    """{name: latency of one sample}, of systems that take turns."""
    times: dict[str, list[float]] = {name: [] for name in systems}
    with ExitStack() as stack:
        turns = {
            name: stack.enter_context(turns_of(prepare, file, feed, threads))
            for name, (prepare, file) in systems.items()
        }
        for turn in turns.values():
            next(turn)  # a single run; all load at once
        for _ in range(rounds):
            for name, turn in turns.items():
                times[name] += next(turn)
    return {name: Latency.of(found) for name, found in times.items()}


@contextmanager
def turns_of(
    prepare: Prepare, file: Path, feed: Mapping[str, Array], threads: int
) -> Iterator[Iterator[list[float]]]:
    """A process that runs a network; each item of the iterator is a slice of its latencies, ms."""
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(
        target=_serve, args=(theirs, prepare, file, dict(feed), threads), daemon=True
    )
    process.start()
    theirs.close()

    def turns() -> Iterator[list[float]]:
        count = 1
        while True:
            time.sleep(SETTLE_S)
            ours.send(count)
            times: list[float] = ours.recv()
            count = max(1, int(SLICE_MS / max(float(np.median(times)), 1e-3)))
            yield times

    yield turns()
    ours.send(0)
    process.join()


def _serve(
    connection: Connection, prepare: Prepare, file: Path, feed: Mapping[str, Array], threads: int
) -> None:
    """What the process does: so many runs as it is told, until that is 0."""
    use_threads(threads)
    run = prepare(file, feed, threads)
    while count := connection.recv():
        times = []
        run()
        for _ in range(count):
            started = time.perf_counter()
            run()
            times.append((time.perf_counter() - started) * 1e3)
        connection.send(times)


def whole_calls(
    load: Load, file: Path, feed: Mapping[str, Array], threads: int
) -> Callable[[], object]:
    """Runs from arrays to arrays, as a program calls them."""
    return functools.partial(load(file, threads), feed)


def use_threads(count: int) -> None:
    """Threads of TVM in this process; it reads them when it starts the first one."""
    os.environ["TVM_NUM_THREADS"] = str(count)
