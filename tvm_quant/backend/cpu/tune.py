"""TuneContractions: register tiles by measurement instead of by the model alone.

The few best tiles of the model are compiled and run on this machine. The fastest is remembered in a
file, by CPU and kernel, so that a network, and others with the same layers, are tuned once.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import tvm
import tvm_ffi
from rich.console import Console
from rich.progress import track
from tvm import IRModule, s_tir, tirx
from tvm.sym import Analyzer
from tvm.target import Target
from tvm.target.codegen import llvm_get_system_cpu

from tvm_quant._pins import PINS
from tvm_quant.atomic import atomic_write
from tvm_quant.backend.cpu.isa import Isa
from tvm_quant.backend.cpu.schedule import SCHEDULED
from tvm_quant.backend.cpu.schedule.contraction import contraction_tiles, schedule_contraction
from tvm_quant.backend.cpu.tile import Tile
from tvm_quant.errors import BackendError

CACHE_VARIABLE = "TVM_QUANT_CACHE"
VERSION = 1  # of what a schedule does with a tile

CANDIDATES = 4
ROUNDS = 5
ROUND_MS = 5  # of each candidate; they take turns


class TileCache:
    """Tiles that were measured, in a JSON file: {machine: {kernel: [rows, vectors]}}.

    Args:
        path: of the file; by default `tiles.json` in `$TVM_QUANT_CACHE`, or in the user's folder
            for caches.

    Raises:
        BackendError: the file is there, and is no such table.
    """

    def __init__(self, path: Path | None = None):
        self.path = path or _folder() / "tiles.json"
        self._machine = _machine()
        self._tiles = self._read().get(self._machine, {})

    def get(self, kernel: str) -> Tile | None:
        """The tile of a kernel, if it is known."""
        known = self._tiles.get(kernel)
        return None if known is None else Tile(rows=known[0], vectors=known[1])

    def add(self, kernel: str, tile: Tile) -> None:
        """Remember a tile; what other processes added meanwhile stays."""
        self._tiles[kernel] = [tile.rows, tile.vectors]
        everything = self._read()
        everything[self._machine] = everything.get(self._machine, {}) | self._tiles
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.path) as stream:
            stream.write((json.dumps(everything, indent=1) + "\n").encode())

    def _read(self) -> dict[str, dict[str, list[int]]]:
        try:
            table = json.loads(self.path.read_text(encoding="utf-8"))
            return {
                str(machine): {str(kernel): [int(n), int(m)] for kernel, (n, m) in tiles.items()}
                for machine, tiles in table.items()
            }
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise BackendError(
                f"'{self.path}' cannot be read as a table of measured tiles ({error}). Delete the "
                f"file, or set {CACHE_VARIABLE} to another folder."
            ) from error


@tvm.transform.module_pass(opt_level=0, name="TuneContractions")
class TuneContractions:
    """Schedule every contraction with the fastest of the best tiles.

    A symbolic batch is measured with one sample.

    Args:
        tuner: finds it.
    """

    def __init__(self, tuner: Tuner):
        self.tuner = tuner

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """Run the pass."""
        mod = mod.clone()
        kernels = {
            gvar: func
            for gvar, func in mod.functions_items()
            if isinstance(func, tirx.PrimFunc) and _can_run(func)
        }
        console = Console(stderr=True)
        for gvar, func in track(
            kernels.items(),
            "Tuning",
            console=console,
            transient=True,
            disable=not console.is_terminal,
        ):
            schedule = self.tuner.schedule(func)
            if schedule is not None:
                mod.update_func(gvar, schedule.mod["main"].with_attr(SCHEDULED, True))
        return mod


class Tuner:
    """Finds the fastest tile of a function, in the cache or by measurement.

    Args:
        isa: of the target.
        target: of this machine.
    """

    def __init__(self, isa: Isa, target: Target):
        self.isa = isa
        self.target = target
        self.cache = TileCache()

    def schedule(self, func: tirx.PrimFunc) -> s_tir.Schedule | None:
        """The best schedule of a contraction; None for other functions."""
        tiles = contraction_tiles(func, self.isa)[:CANDIDATES]
        if not tiles:
            return None
        kernel = _key(func)
        best = self.cache.get(kernel)
        if best not in tiles:
            best = self.fastest(func, tiles) if len(tiles) > 1 else tiles[0]
            self.cache.add(kernel, best)
        return schedule_contraction(func, self.isa, best)

    def fastest(self, func: tirx.PrimFunc, tiles: list[Tile]) -> Tile:
        """The tile with the least time of several runs in turns."""
        schedules = {tile: schedule_contraction(func, self.isa, tile) for tile in tiles}
        timers = {
            tile: _timer(schedule, self.target) for tile, schedule in schedules.items() if schedule
        }
        arguments = _arguments(func)
        least = dict.fromkeys(timers, np.inf)
        for _ in range(ROUNDS):
            for tile, timer in timers.items():
                least[tile] = min(least[tile], timer(*arguments).min)
        return min(timers, key=lambda tile: least[tile], default=tiles[0])


def _timer(schedule: s_tir.Schedule, target: Target) -> Any:
    func = schedule.mod["main"].with_attr("global_symbol", "main")
    compiled = tvm.compile(IRModule({"main": func}), target)
    return compiled.mod.time_evaluator(
        "main", tvm.cpu(), number=1, repeat=1, min_repeat_ms=ROUND_MS
    )


def _arguments(func: tirx.PrimFunc) -> list[tvm.runtime.Tensor]:
    """Ones in buffers of the shapes of a function."""
    return [
        tvm.runtime.tensor(np.ones(shape, str(param.ty.dtype)))
        for shape, param in zip(_shapes(func), func.params, strict=True)
    ]


def _can_run(func: tirx.PrimFunc) -> bool:
    """Whether all arguments are buffers that hold something where symbolic sizes are 1."""
    return all(isinstance(param.ty, tirx.BufferType) for param in func.params) and all(
        min(shape, default=1) > 0 for shape in _shapes(func)
    )


def _shapes(func: tirx.PrimFunc) -> list[tuple[int, ...]]:
    """Shapes of the buffers of a function for one sample: symbolic sizes are 1."""
    return [tuple(map(_size, param.ty.shape)) for param in func.params]


def _size(dim: Any) -> int:
    if isinstance(dim, int):
        return dim
    analyzer = Analyzer()
    for var in tirx.analysis.undefined_vars(dim, []):
        analyzer.bind(var, tirx.const(1, str(var.ty)))
    return int(analyzer.simplify(dim))


def _key(func: tirx.PrimFunc) -> str:
    """Of what a function computes, whatever it is called."""
    return f"{tvm_ffi.structural_hash(func.without_attr('global_symbol')) % 2**64:016x}"


def _machine() -> str:
    versions = ", ".join(f"{name} {version}" for name, version in PINS.items())
    return f"{llvm_get_system_cpu()}, {tvm.runtime.num_threads()} threads, {versions}, v{VERSION}"


def _folder() -> Path:
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen) if chosen else platformdirs.user_cache_path("tvm_quant")
