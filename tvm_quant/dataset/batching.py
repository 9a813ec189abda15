"""Cutting and joining samples to the batches a model takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from tvm_quant.dataset.arrays import Array


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What one run of the model takes."""

    inputs: dict[str, Array]
    """{input name: array}, of the shapes and dtypes of the model's inputs."""

    labels: Array | None
    """(valid, ...): what the samples show, if the source knows."""

    valid: int
    """Samples in the batch; rows after them repeat earlier ones to fill a fixed batch."""


def regroup(runs: Iterable[Batch], size: int, *, fixed: bool) -> Iterator[Batch]:
    """Cut and join runs of samples into batches of `size` rows, in order.

    Samples of different shapes (sequences of several lengths) never share a batch. A leftover
    is filled up by repeating its samples when `fixed`, else it makes a smaller batch: no sample is
    lost.

    >>> runs = [Batch(inputs={"x": np.arange(5)}, labels=None, valid=5)]
    >>> [batch.inputs["x"].tolist() for batch in regroup(runs, 2, fixed=True)]
    [[0, 1], [2, 3], [4, 4]]
    """
    pending: Batch | None = None
    for run in runs:
        if pending is not None and _row_shapes(pending) != _row_shapes(run):
            yield _filled(pending, size if fixed else 1)
            pending = None
        joined = run if pending is None else _join(pending, run)
        full = joined.valid - joined.valid % size
        for start in range(0, full, size):
            yield rows(joined, start, start + size)
        pending = rows(joined, full, joined.valid) if full < joined.valid else None
    if pending is not None:
        yield _filled(pending, size if fixed else 1)


def rows(batch: Batch, start: int, stop: int) -> Batch:
    """The rows from `start` up to `stop`."""
    return replace(
        batch,
        inputs={name: array[start:stop] for name, array in batch.inputs.items()},
        labels=None if batch.labels is None else batch.labels[start:stop],
        valid=min(stop, batch.valid) - start,
    )


def _filled(batch: Batch, size: int) -> Batch:
    if batch.valid >= size:
        return batch
    inputs = {
        name: np.resize(array, (size, *array.shape[1:])) for name, array in batch.inputs.items()
    }
    return replace(batch, inputs=inputs)


def _join(first: Batch, second: Batch) -> Batch:
    both_labelled = first.labels is not None and second.labels is not None
    return Batch(
        inputs={name: np.concatenate([a, second.inputs[name]]) for name, a in first.inputs.items()},
        labels=np.concatenate([first.labels, second.labels]) if both_labelled else None,
        valid=first.valid + second.valid,
    )


def _row_shapes(batch: Batch) -> dict[str, tuple[int, ...]]:
    return {name: array.shape[1:] for name, array in batch.inputs.items()}
