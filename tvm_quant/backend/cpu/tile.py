"""Choosing the register tile of a contraction.

A tile holds `rows` neighbouring outputs of `vectors` vectors of output channels in registers. Each
step of the reduction broadcasts one input per row and loads one weight vector per vector.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tvm_quant.backend.cpu.isa import Isa

MAX_ROWS = 8  # beyond, LLVM gathers the broadcasts by shuffles: four times slower
STAGING_COST = 0.5  # cycles per input and row of channel vectors to copy the input to pad it


@dataclass(frozen=True, kw_only=True)
class Tile:
    """Outputs held in registers: `rows` x `vectors` vectors."""

    rows: int
    vectors: int

    def cost(self, isa: Isa) -> float:
        """Cycles per multiply-add of vectors; 0.5 is the peak of two units."""
        work = self.rows * self.vectors
        latency = 4.0  # of one multiply-add, which two units in flight have to cover
        loads = 0.55 * (self.rows + self.vectors)
        return max(0.5 * work, loads, latency) / work

    def fits(self, isa: Isa) -> bool:
        """Whether the sums, a row's weights and a broadcast input have a register each."""
        return (self.rows + 1) * self.vectors + 1 <= isa.registers


def choose_tile(isa: Isa, *, rows: int, vectors: int, pads: bool) -> tuple[Tile, float]:
    """The first of `rank_tiles`."""
    return rank_tiles(isa, rows=rows, vectors=vectors, pads=pads)[0]


@functools.cache
def rank_tiles(isa: Isa, *, rows: int, vectors: int, pads: bool) -> tuple[tuple[Tile, float], ...]:
    """Tiles for `rows` neighbouring outputs of `vectors` vectors of channels, the best first.

    Args:
        isa: of the target.
        rows: extent of the tiled spatial axis.
        vectors: number of channel vectors; the tile's count divides it.
        pads: whether the axis may be rounded up; otherwise the tile's rows divide it.

    Returns:
        Each tile and its cost per useful vector multiply-add, rounding included.
    """
    found = []
    for tile_vectors in _divisors(vectors, limit=isa.registers // 2):
        for tile_rows in range(1, min(rows, MAX_ROWS) + 1):
            rounded = -(-rows // tile_rows) * tile_rows
            if rounded != rows and not pads:
                continue
            tile = Tile(rows=tile_rows, vectors=tile_vectors)
            if not tile.fits(isa):
                continue
            cost = tile.cost(isa) * rounded / rows
            cost += STAGING_COST / vectors if rounded != rows else 0.0
            found.append((tile, cost))
    return tuple(sorted(found, key=lambda ranked: round(ranked[1], 9)))


def _divisors(number: int, *, limit: int) -> list[int]:
    return [factor for factor in range(1, min(number, limit) + 1) if number % factor == 0]


def window_rows(rows: int) -> int:
    """Rows of a tile of a depthwise convolution over `rows` neighbouring outputs.

    Neighbouring rows share inputs, so many are better; the fewest rounded up win.
    """
    return min(
        range(1, min(MAX_ROWS, rows) + 1),
        key=lambda tile: (-(-rows // tile) * tile + 8 // tile, -tile),
    )
