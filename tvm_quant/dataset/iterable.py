"""Iterables of batches: lists, data loaders, generators, MXNet iterators, functions that make one.

Data is read more than once (checked, profiled, used again by bias correction). An iterable that can
be read only once, such as a generator, is written to a temporary file while it is read first.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from tvm_quant.dataset.bind import RawBatch, bind
from tvm_quant.dataset.source import Request
from tvm_quant.errors import DatasetError

SPOOL_LIMIT = 4 << 30
"""Bytes of a one-time iterable kept on disk at most."""


def is_iterable(source: Any, _request: Request) -> bool:
    """Anything that `iter` takes, or a function that returns such a thing."""
    return callable(source) or isinstance(source, Iterable)


def open_iterable(source: Any, request: Request) -> IterableSource | OneTimeSource:
    """Read `source` again and again, or keep what it gave where that is impossible."""
    name = getattr(source, "__name__", type(source).__name__)
    if not callable(source) and not hasattr(source, "reset") and iter(source) is source:
        return OneTimeSource(iter(source), request, f"one-time iterable ({name})")
    return IterableSource(source, request, f"iterable ({name})")


@dataclass(kw_only=False)
class IterableSource:
    """An iterable that gives its batches at each `iter`."""

    iterable: Any
    request: Request
    description: str
    keeps_batches: bool = True

    def batches(self, limit: int | None) -> Iterator[RawBatch]:
        """Each item of the iterable, bound."""
        for index, item in enumerate(self._fresh()):
            yield bind(item, self.request.signature, f"batch {index}")

    def _fresh(self) -> Iterator[Any]:
        if hasattr(self.iterable, "reset"):  # an MXNet DataIter is its own iterator
            self.iterable.reset()
        made = self.iterable() if callable(self.iterable) else self.iterable
        if isinstance(made, Iterable):
            return iter(made)
        raise DatasetError(
            f"the data function returned {type(made).__name__}, expected an iterable of batches"
        )


@dataclass
class OneTimeSource:
    """An iterator: its batches go to a temporary file at the first reading."""

    iterator: Iterator[Any]
    request: Request
    description: str
    keeps_batches: bool = True
    _spool: IO[bytes] = field(default_factory=tempfile.TemporaryFile, repr=False)
    _count: int = 0

    def batches(self, limit: int | None) -> Iterator[RawBatch]:
        """First what was kept, then what the iterator still has."""
        yield from self._kept()
        for item in self.iterator:
            raw = bind(item, self.request.signature, f"batch {self._count}")
            self._keep(raw)
            yield raw

    def _kept(self) -> Iterator[RawBatch]:
        position = 0
        for _ in range(self._count):
            self._spool.seek(position)
            raw: RawBatch = pickle.load(self._spool)
            position = self._spool.tell()
            yield raw

    def _keep(self, raw: RawBatch) -> None:
        self._spool.seek(0, 2)
        pickle.dump(raw, self._spool, protocol=5)
        self._count += 1
        if self._spool.tell() > SPOOL_LIMIT:
            raise DatasetError(
                f"the one-time iterable gave more than {SPOOL_LIMIT >> 30} GiB in {self._count} "
                "batches without an end. Set a limit, or pass a list, a class with __iter__ or a "
                "function that returns a new generator"
            )
