"""Tiles of a contraction: what is computed between a reset and a store, and what a step loads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import nsmallest
from typing import NamedTuple

Pair = tuple[int, int]

LARGEST_LOOP = (1 << 14) - 1
REUSE_SLOTS = 2  # of a GEMM in which a sum must not come again: no pipeline forwards it
FINALISTS = 12  # tiles whose pipeline is followed
# cycles of the simulator's default model, at 16 lanes
INPUT_CYCLES, WEIGHT_CYCLES, SUM_CYCLES, OUTPUT_CYCLES, MICRO_OP_CYCLES = 2, 32, 8, 2, 0.5
EPILOGUE_CYCLES = 5  # a sum: bias, shift, clip
LATENCY, SETUP = 16, 4


class Tile(NamedTuple):
    """Rows and columns of the output plane, blocks of output channels, and of inputs of a step."""

    rows: int
    columns: int
    outputs: int
    inputs: int

    @property
    def elements(self) -> int:
        """Sums."""
        return self.rows * self.columns * self.outputs


@dataclass(frozen=True, kw_only=True)
class Room:
    """Elements of half of each memory, and micro-ops of a step."""

    inp: int
    wgt: int
    acc: int
    micro_ops: int


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A contraction, as far as its tiles depend on it.

    Attributes:
        plane: rows, columns of the output; data: of the input.
        samples: of the batch.
        outputs: blocks of channels; tiles of several of them only if `shared`.
        inputs: blocks that an output block reads; shared: the same for all of them.
        residual: whether a tensor is added, tile by tile.
    """

    plane: Pair
    data: Pair
    samples: int
    outputs: int
    inputs: int
    shared: bool
    kernel: Pair
    strides: Pair
    dilation: Pair
    residual: bool

    @property
    def taps(self) -> int:
        """Positions of the kernel."""
        return self.kernel[0] * self.kernel[1]

    def window(self, tile: Tile) -> int:
        """Elements of an input plane that a tile reads."""
        rows, columns = self._extents(tile)
        return rows * columns

    def _extents(self, tile: Tile) -> Pair:
        rows, columns = (
            (count - 1) * stride + (kernel - 1) * dilation + 1
            for count, stride, kernel, dilation in zip(
                tile[:2], self.strides, self.kernel, self.dilation, strict=True
            )
        )
        return rows, columns

    def fits(self, tile: Tile, room: Room) -> bool:
        """Whether a step fits half of each memory."""
        return (
            tile.inputs * self.window(tile) <= room.inp
            and tile.outputs * tile.inputs * self.taps <= room.wgt
            and tile.elements + tile.outputs <= room.acc
            and self._micro_ops(tile) <= room.micro_ops
            and (not self.residual or max(tile.elements, tile.outputs) <= min(room.inp, room.acc))
            and (not self.residual or tile.outputs <= room.wgt)
            and tile.columns <= LARGEST_LOOP
        )

    def pieces(self, tile: Tile) -> int:
        """GEMM instructions of a step."""
        if tile.outputs * tile.rows > REUSE_SLOTS:
            return 1
        return self.taps * (1 if tile.elements > REUSE_SLOTS else tile.inputs)

    def tiles(self, room: Room) -> Iterator[Tile]:
        """For each number of blocks, those of the most elements, for each number of columns."""
        for outputs in divisions(self.outputs if self.shared else 1):
            for inputs in divisions(self.inputs):
                for columns in divisions(self.plane[1]):
                    rows = self._most_rows(columns, outputs, inputs, room)
                    if rows:
                        rows = -(-self.plane[0] // -(-self.plane[0] // rows))
                        yield Tile(rows, columns, outputs, inputs)

    def _most_rows(self, columns: int, outputs: int, inputs: int, room: Room) -> int:
        low, high = 0, self.plane[0]
        while low < high:
            middle = -(-(low + high) // 2)
            if self.fits(Tile(middle, columns, outputs, inputs), room):
                low = middle
            else:
                high = middle - 1
        return low

    def estimate(self, tile: Tile) -> float:
        """Cycles, if loads, products and stores always overlap."""
        height, width = self.plane
        tiles = -(-height // tile.rows) * -(-width // tile.columns) * self.samples
        tiles *= -(-self.outputs // tile.outputs)
        steps = -(-self.inputs // tile.inputs)
        load, multiply = self._step(tile)
        compute = steps * multiply + self._epilogue(tile)
        loads = steps * load
        return tiles * (max(loads, compute) + 0.05 * min(loads, compute)) + load

    def cycles(self, tile: Tile) -> float:
        """Cycles of the pipeline: halves of memories take turns, and stages wait for each other."""
        loaded = computed = stored = 0.0
        freed, kept = [0.0, 0.0], [0.0, 0.0]  # when steps and stores left the halves
        step = 0
        for index, part in enumerate(self._parts(tile)):
            computed = max(computed, kept[index % 2]) + part.elements + SETUP
            for load, multiply in self._steps(part):
                loaded = max(loaded, freed[step % 2]) + load
                fetch = LATENCY + self._micro_ops(tile) * MICRO_OP_CYCLES if step < 4 else 0
                computed = freed[step % 2] = max(computed + fetch, loaded) + multiply
                step += 1
            computed += self._epilogue(part) - part.elements - SETUP
            store = part.elements * OUTPUT_CYCLES + part.outputs * LATENCY
            stored = kept[index % 2] = max(stored, computed) + store
        return stored

    def _parts(self, tile: Tile) -> Iterator[Tile]:
        for _ in range(self.samples):
            for outputs in _parts(self.outputs, tile.outputs):
                for rows in _parts(self.plane[0], tile.rows):
                    for columns in _parts(self.plane[1], tile.columns):
                        yield Tile(rows, columns, outputs, tile.inputs)

    def _steps(self, part: Tile) -> Iterator[Pair]:
        if self.residual:
            load = part.outputs * (LATENCY + WEIGHT_CYCLES) + LATENCY
            yield load + part.elements * INPUT_CYCLES, part.elements + SETUP
        for inputs in _parts(self.inputs, part.inputs):
            yield self._step(part._replace(inputs=inputs))

    def _step(self, part: Tile) -> Pair:
        """Cycles to load and to multiply."""
        rows, columns = map(min, self._extents(part), self.data)
        weights = part.outputs * part.inputs * self.taps * WEIGHT_CYCLES + LATENCY
        load = part.inputs * (rows * columns * INPUT_CYCLES + LATENCY) + weights
        return load, part.elements * part.inputs * self.taps + SETUP * self.pieces(part)

    def _epilogue(self, part: Tile) -> int:
        """Cycles of what is done once for each sum, and its reset."""
        bias = LATENCY + part.outputs * SUM_CYCLES
        return part.elements * (1 + EPILOGUE_CYCLES) + 5 * SETUP + bias

    def _micro_ops(self, tile: Tile) -> int:
        return tile.outputs * tile.rows * self.taps


def choose(problem: Problem, room: Room) -> Tile | None:
    """The tile of the fewest cycles; None where not even the smallest fits."""
    finalists = nsmallest(FINALISTS, set(problem.tiles(room)), key=problem.estimate)
    return min(sorted(finalists), key=problem.cycles, default=None)


def _parts(count: int, size: int) -> list[int]:
    return [min(size, count - start) for start in range(0, count, size)]


def largest(plane: Pair, fits: Callable[[int, int], bool]) -> Pair:
    """The part of a plane with the most elements that fits, or (0, 0)."""
    best = (0, 0)
    for columns in reversed(divisions(plane[1])):
        rows = next((rows for rows in range(plane[0], 0, -1) if fits(rows, columns)), 0)
        if rows:
            rows = -(-plane[0] // -(-plane[0] // rows))
            best = max(best, (rows, columns), key=lambda tile: tile[0] * tile[1])
    return best


def divisions(count: int) -> list[int]:
    """The sizes of parts that divide so many as evenly as possible.

    >>> divisions(7)
    [1, 2, 3, 4, 7]
    """
    return sorted({-(-count // parts) for parts in range(1, count + 1)})
