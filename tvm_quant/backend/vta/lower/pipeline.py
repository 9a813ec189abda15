"""Double buffering: which half of a memory is used, and the tokens that keep the units apart.

Steps alternate between the halves of INP and WGT, tiles between those of ACC. A step's loads wait
until the step before the last was consumed; a tile's first sum waits until the tile before the
last was stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tvm_quant.backend.vta.isa import Stage, Token
from tvm_quant.backend.vta.program import Builder

HALVES = 2


class Pipeline:
    """The tokens of one layer.

    Args:
        builder: of the program.
        after: whether a layer stands before this one, whose results have to be in DRAM.
    """

    def __init__(self, builder: Builder, *, after: bool):
        self._builder, self._barrier = builder, after
        self._steps = self._tiles = 0
        self._consumers: list[int] = []

    @contextmanager
    def loading(self) -> Iterator[int]:
        """Loads of the next step; gives the half to fill."""
        if self._barrier:  # all stores were waited for: see `close`
            self._builder.nop(Stage.COMPUTE, signal=(Token.CONSUMED,))
        waits = self._barrier or self._steps >= HALVES
        self._barrier = False
        wait = (Token.CONSUMED,) if waits else ()
        with self._builder.tokens(Stage.LOAD, wait=wait, signal=(Token.LOADED,)):
            yield self._steps % HALVES

    @contextmanager
    def consuming(self) -> Iterator[int]:
        """Sums over what the last loads brought; gives its half."""
        signal = (Token.CONSUMED,)
        with self._builder.tokens(Stage.COMPUTE, wait=(Token.LOADED,), signal=signal):
            yield self._steps % HALVES
        self._consumers.append(len(self._builder.instructions) - 1)
        self._steps += 1

    @contextmanager
    def tile(self) -> Iterator[int]:
        """All steps of a tile and what follows them; gives the half of ACC."""
        wait = (Token.STORED,) if self._tiles >= HALVES else ()
        with self._builder.tokens(Stage.COMPUTE, wait=wait, signal=(Token.COMPUTED,)):
            yield self._tiles % HALVES
        self._tiles += 1

    @contextmanager
    def storing(self) -> Iterator[None]:
        """Stores of the tile."""
        with self._builder.tokens(Stage.STORE, wait=(Token.COMPUTED,), signal=(Token.STORED,)):
            yield

    def close(self) -> None:
        """Wait for all stores; take back the tokens that nobody waits for."""
        for index in self._consumers[-HALVES:]:
            self._builder.retract(index, Token.CONSUMED)
        for _ in range(min(HALVES, self._tiles)):
            self._builder.nop(Stage.COMPUTE, wait=(Token.STORED,))
