"""What a source of batches has to offer, and how to write one.

A source is one file in this folder and one row of `SOURCES` (in `open_source.py`). It yields
`RawBatch`es: arrays bound to input names. It checks nothing else; `CheckedDataset` does that for
all of them, and it also splits, merges, skips and limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tvm_quant.dataset.bind import RawBatch, listed
from tvm_quant.dataset.preprocess import Preprocess
from tvm_quant.errors import DatasetError
from tvm_quant.ir import TensorInfo

CHUNK = 8
"""Rows a source reads at a time where the batches are its own choice."""


class DatasetWarning(UserWarning):
    """Data that can be used, but probably is not what was meant."""


class Source(Protocol):
    """Batches that can be read as often as wanted, a few in memory at a time."""

    @property
    def description(self) -> str:
        """One line for messages and for the provenance of a result."""

    @property
    def keeps_batches(self) -> bool:
        """The user chose the batches: a model with a symbolic batch size gets them as they are."""

    def batches(self, limit: int | None) -> Iterator[RawBatch]:
        """From the first batch on, at each call.

        Args:
            limit: samples wanted at most; a hint, a source may give more.
        """


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a source is opened for."""

    signature: tuple[TensorInfo, ...]
    preprocess: Preprocess | None


@dataclass(frozen=True, kw_only=True)
class SourceRow:
    """One kind of source: how to know it, how to open it."""

    name: str
    accepts: Callable[[Any, Request], bool]
    open: Callable[[Any, Request], Source]


def image_input(request: Request) -> TensorInfo:
    """The input that gets preprocessed images.

    Raises:
        DatasetError: the spec names no input of the model, or leaves the choice open.
    """
    name = request.preprocess.input if request.preprocess else None
    named = [info for info in request.signature if name in (None, info.name)]
    if len(named) == 1:
        return named[0]
    raise DatasetError(
        f"preprocessing: {f'no input {name!r}' if name else 'which input gets the images?'} The "
        f"model has {listed(request.signature)}; set 'input' in the preprocessing spec to one of "
        "them"
    )


def only_input(signature: Sequence[TensorInfo]) -> TensorInfo | None:
    """The model's input if it has exactly one."""
    return signature[0] if len(signature) == 1 else None
