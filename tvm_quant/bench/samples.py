"""Samples: what a network is calibrated or measured on, made into batches one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

Feed = Mapping[str, Array]
"""One batch: {input: values}."""

Run = Callable[[Feed], list[Array]]
"""Something that runs a network on one batch."""


class Stored(Protocol):
    """Raw values of all samples along axis 0."""

    def __len__(self) -> int:
        """Number of samples."""

    def rows(self, places: Array) -> Array:
        """The samples at these places."""


@dataclass(frozen=True)
class InMemory:
    """Raw values that are small enough to hold."""

    array: Array

    def __len__(self) -> int:
        return len(self.array)

    def rows(self, places: Array) -> Array:
        """The samples at these places."""
        return np.asarray(self.array[places])


@dataclass(frozen=True)
class OnDisk:
    """A `.npy` file, opened for each read: what was read is not kept in memory."""

    path: Path

    def __len__(self) -> int:
        return len(np.load(self.path, mmap_mode="r"))

    def rows(self, places: Array) -> Array:
        """The samples at these places."""
        return np.array(np.load(self.path, mmap_mode="r")[places])


def unchanged(raw: Array) -> Array:
    """Values that are in the network's form already."""
    return raw


@dataclass(frozen=True, kw_only=True)
class Column:
    """One input of the network.

    Attributes:
        stored: raw values.
        prepare: from raw values, (N, ...), to what the network takes.
    """

    stored: Stored
    prepare: Callable[[Array], Array] = unchanged


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Some samples of a data set, in a fixed order; can be iterated again and again.

    Iterating gives `{input name: array of one sample}`, the form `tvm_quant.quantize` takes.

    Attributes:
        columns: by input name.
        labels: one for each sample, in the form the metric takes; None without.
        places: which of the stored samples, in order.
        spaced: a part of them is evenly spaced, because neighbours are alike (a folder sorted by
            class); else it is the first ones.
    """

    columns: Mapping[str, Column]
    labels: Any
    places: Array
    spaced: bool = False

    @classmethod
    def all_of(
        cls, columns: Mapping[str, Column], labels: Any = None, *, spaced: bool = False
    ) -> Samples:
        """Every stored sample."""
        count = len(next(iter(columns.values())).stored)
        return cls(columns=columns, labels=labels, places=np.arange(count), spaced=spaced)

    def labelled(self, labels: Any) -> Samples:
        """The same samples with labels."""
        return replace(self, labels=labels)

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[dict[str, Array]]:
        return self.batches(1)

    def limited(self, count: int | None) -> Samples:
        """At most `count` samples."""
        if count is None or count >= len(self):
            return self
        step = len(self) if self.spaced else count
        chosen = np.linspace(0, step, count, endpoint=False).astype(int)
        labels = self.labels
        if isinstance(labels, list):
            labels = [labels[place] for place in chosen]
        elif labels is not None:
            labels = labels[chosen]
        return replace(self, places=self.places[chosen], labels=labels)

    def batches(self, size: int) -> Iterator[dict[str, Array]]:
        """Batches of `size` samples; the last one is filled up with its last sample."""
        for start in range(0, len(self), size):
            chosen = self.places[start : start + size]
            filled = np.pad(chosen, (0, size - len(chosen)), mode="edge")
            yield {
                name: np.ascontiguousarray(column.prepare(column.stored.rows(filled)))
                for name, column in self.columns.items()
            }
