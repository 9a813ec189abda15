"""Samples stacked along axis 0 in memory: one array, or a mapping of arrays by input name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tvm_quant.dataset.arrays import is_tensor, to_numpy
from tvm_quant.dataset.bind import RawBatch, bind, bind_mapping
from tvm_quant.dataset.check import is_batched
from tvm_quant.dataset.source import CHUNK, Request, only_input
from tvm_quant.errors import DatasetError


def is_stacked(source: Any, request: Request) -> bool:
    """A mapping, or a tensor whose rank is that of samples rather than of batches."""
    if isinstance(source, Mapping):
        return True
    if isinstance(source, (list, tuple)) or not is_tensor(source):
        return False
    info = only_input(request.signature)
    return bool(request.preprocess) or info is None or to_numpy(source).ndim <= len(info.shape)


def open_stacked(source: Any, request: Request) -> StackedSource:
    """Bind the arrays at once; rows are cut as they are read."""
    if isinstance(source, Mapping):
        raw = bind_mapping(source, request.signature, "the mapping of samples")
        return StackedSource(raw, request, f"arrays in memory ({', '.join(map(str, source))})")
    raw = bind(source, request.signature, "the array of samples")
    return StackedSource(raw, request, "array in memory")


@dataclass
class StackedSource:
    """Cuts stacked samples into runs of a few rows."""

    raw: RawBatch
    request: Request
    description: str
    keeps_batches: bool = False

    def batches(self, limit: int | None) -> Iterator[RawBatch]:
        """Runs of `CHUNK` rows, without copies."""
        rows = self._rows()
        if rows is None:
            yield self.raw
            return
        for start in range(0, rows, CHUNK):
            stop = min(start + CHUNK, rows)
            labels = None if self.raw.labels is None else self.raw.labels[start:stop]
            arrays = {name: array[start:stop] for name, array in self.raw.arrays.items()}
            yield replace(
                self.raw, arrays=arrays, labels=labels, where=f"samples {start} to {stop - 1}"
            )

    def _rows(self) -> int | None:
        """Number of rows, or None where the arrays are one sample as it stands."""
        arrays = self.raw.arrays
        if not is_batched(self.request.signature):
            return None
        ranks = {info.name: len(info.shape) for info in self.request.signature}
        if not self.request.preprocess and any(a.ndim < ranks[n] for n, a in arrays.items()):
            return None
        counts = {name: len(array) for name, array in arrays.items()}
        if self.raw.labels is not None:
            counts["labels"] = len(self.raw.labels)
        if len(set(counts.values())) == 1:
            return next(iter(counts.values()))
        raise DatasetError(
            "the arrays hold different numbers of samples: "
            + ", ".join(f"'{name}' {count}" for name, count in counts.items())
        )
