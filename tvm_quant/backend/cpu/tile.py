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

    def cost(self, multiplications: int = 1) -> float:
        """Cycles per multiply-add of vectors; 0.5 is the peak of two units.

        Args:
            multiplications: instructions for these units that a multiply-add takes.
        """
        work = self.rows * self.vectors
        latency = 4.0  # of one multiply-add, which two units in flight have to cover
        loads = 0.55 * (self.rows + self.vectors)
        return max(0.5 * multiplications * work, loads, latency) / work

    @property
    def loads(self) -> float:
        """Inputs and weights that a multiply-add of vectors loads."""
        return (self.rows + self.vectors) / (self.rows * self.vectors)

    def fits(self, isa: Isa, multiplications: int = 1) -> bool:
        """Whether the sums, a row's weights and a broadcast input have a register each.

        Where a multiply-add takes a second multiplication, its factor and what lies between the two
        need one each.
        """
        between = 2 * (multiplications - 1)
        return (self.rows + 1) * self.vectors + 1 + between <= isa.registers


def choose_tile(
    isa: Isa, *, rows: int, vectors: int, padding: float | None, multiplications: int = 1
) -> tuple[Tile, float]:
    """The first of `rank_tiles`."""
    return rank_tiles(
        isa, rows=rows, vectors=vectors, padding=padding, multiplications=multiplications
    )[0]


@functools.cache
def rank_tiles(
    isa: Isa, *, rows: int, vectors: int, padding: float | None, multiplications: int = 1
) -> tuple[tuple[Tile, float], ...]:
    """Tiles for `rows` neighbouring outputs of `vectors` vectors of channels, the best first.

    Of equal ones, those that load less come first.

    Args:
        isa: of the target.
        rows: extent of the tiled spatial axis.
        vectors: number of channel vectors; the tile's count divides it.
        padding: cycles per input and row of channel vectors, where the axis is rounded up; None
            where it may not be: then the tile's rows divide it.
        multiplications: see `Tile.cost`.

    Returns:
        Each tile and its cost per useful vector multiply-add, rounding included.
    """
    found = []
    for tile_vectors in _divisors(vectors, limit=isa.registers // 2):
        for tile_rows in range(1, min(rows, MAX_ROWS) + 1):
            rounded = -(-rows // tile_rows) * tile_rows
            if rounded != rows and padding is None:
                continue
            tile = Tile(rows=tile_rows, vectors=tile_vectors)
            if not tile.fits(isa, multiplications):
                continue
            cost = tile.cost(multiplications) * rounded / rows
            cost += (padding or 0.0) / vectors if rounded != rows else 0.0
            found.append((tile, cost))
    return tuple(sorted(found, key=lambda ranked: (round(ranked[1], 9), ranked[0].loads)))


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
