"""`.npz` and `.npy` files of stacked samples, read a few rows at a time.

Arrays of an `.npz` are named like the inputs; with one input, any name will do. Labels are called
label, labels or y. The rows are streamed out of the zip members, compressed or not, so memory does
not grow with the file.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from tvm_quant.dataset.arrays import LABEL_NAMES, Array
from tvm_quant.dataset.bind import RawBatch, bind_mapping, shape_text
from tvm_quant.dataset.check import is_batched
from tvm_quant.dataset.source import CHUNK, Request, image_input, only_input
from tvm_quant.dataset.stacked import StackedSource
from tvm_quant.errors import DatasetError


def is_npz(source: Any, _request: Request) -> bool:
    """A path that ends in `.npz` or `.npy`."""
    return isinstance(source, (str, Path)) and Path(source).suffix in (".npz", ".npy")


def open_npz(source: str | Path, request: Request) -> NpzSource | StackedSource:
    """Read the headers and choose the arrays.

    Raises:
        DatasetError: no such file, not an array file, or arrays that do not match the inputs.
    """
    path = Path(source)
    if not path.is_file():
        raise DatasetError(f"there is no data file {path}")
    try:
        if path.suffix == ".npy":
            raw = RawBatch(
                arrays={_target(request): np.load(path, mmap_mode="r")},
                labels=None,
                where=str(path),
            )
            return StackedSource(raw, request, f"file {path.name}")
        return NpzSource(path, request)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        if isinstance(error, DatasetError):
            raise
        raise DatasetError(f"{path} is damaged or no NumPy file: {error}") from error


class NpzSource:
    """Streams rows of the chosen members."""

    keeps_batches = False

    def __init__(self, path: Path, request: Request):
        self.path = path
        self.batched = bool(request.preprocess) or is_batched(request.signature)
        with zipfile.ZipFile(path) as archive:
            self.headers = {
                name.removesuffix(".npy"): _header(archive, name)
                for name in archive.namelist()
                if name.endswith(".npy")
            }
        self.members, self.labels = self._choose(request)
        self.rows = self._count_rows(request)
        shapes = [f"{m} {shape_text(self.headers[m].shape)}" for m in self.members.values()]
        self.description = f"file {path.name} ({', '.join(shapes)})"

    def batches(self, limit: int | None) -> Iterator[RawBatch]:
        """Runs of `CHUNK` rows."""
        try:
            yield from self._stream()
        except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            if isinstance(error, DatasetError):
                raise
            raise DatasetError(f"{self.path} is damaged: {error}") from error

    def _stream(self) -> Iterator[RawBatch]:
        with ExitStack() as stack:
            archive = stack.enter_context(zipfile.ZipFile(self.path))
            wanted = {*self.members.values(), *([self.labels] if self.labels else [])}
            readers = {
                name: stack.enter_context(_Rows(archive, name, self.headers[name]))
                for name in wanted
            }
            rows = self.rows
            for start in range(0, 1 if rows is None else rows, CHUNK):
                count = None if rows is None else min(CHUNK, rows - start)
                taken = {name: reader.take(count) for name, reader in readers.items()}
                yield RawBatch(
                    arrays={name: taken[member] for name, member in self.members.items()},
                    labels=taken[self.labels] if self.labels else None,
                    where=f"{self.path.name}, samples {start} to {start + (count or 1) - 1}",
                )

    def _choose(self, request: Request) -> tuple[dict[str, str], str | None]:
        """{input name: member name} and the member that holds the labels."""
        labels = next((name for name in LABEL_NAMES if name in self.headers), None)
        if request.preprocess and request.preprocess.array:
            wanted = request.preprocess.array
            if wanted not in self.headers:
                raise DatasetError(
                    f"{self.path} has no array '{wanted}'; it holds {self._inventory()}"
                )
            return {image_input(request).name: wanted}, labels
        others = [name for name in self.headers if name != labels]
        info = only_input(request.signature)
        if info and info.name not in self.headers:
            if len(others) == 1:
                return {info.name: others[0]}, labels
            raise DatasetError(
                f"{self.path} has {len(others)} arrays that could be input '{info.name}': "
                f"{self._inventory()}. Name the array like the input, or set 'array' in a "
                "preprocessing spec"
            )
        names: dict[str, Any] = {name: np.asarray(name) for name in self.headers}
        bound = bind_mapping(names, request.signature, f"file {self.path}")
        return {name: str(member) for name, member in bound.arrays.items()}, labels

    def _count_rows(self, request: Request) -> int | None:
        names = [*self.members.values(), *([self.labels] if self.labels else [])]
        shapes = {name: self.headers[name].shape for name in names}
        ranks = {info.name: len(info.shape) for info in request.signature}
        one_sample = any(len(shapes[m]) < ranks[n] for n, m in self.members.items())
        if not self.batched or (one_sample and not request.preprocess):
            return None
        counts = {name: shape[0] if shape else 0 for name, shape in shapes.items()}
        if len(set(counts.values())) == 1:
            return next(iter(counts.values()))
        raise DatasetError(
            f"{self.path}: the arrays hold different numbers of samples: "
            + ", ".join(f"'{name}' {count}" for name, count in counts.items())
        )

    def _inventory(self) -> str:
        return ", ".join(
            f"'{name}' {shape_text(head.shape)} {head.dtype}" for name, head in self.headers.items()
        )


@dataclass(frozen=True)
class _Header:
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]


def _read_header(stream: IO[bytes]) -> _Header:
    version = npy.read_magic(stream)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    return _Header(*read(stream))


def _header(archive: zipfile.ZipFile, member: str) -> _Header:
    with archive.open(member) as stream:
        header = _read_header(stream)
    if header.dtype.hasobject:
        raise DatasetError(
            f"{archive.filename}: array '{member.removesuffix('.npy')}' holds Python objects; save "
            "numbers"
        )
    return header


class _Rows:
    """Reads an `.npy` zip member from the front. Fortran order cannot be streamed: read whole."""

    def __init__(self, archive: zipfile.ZipFile, name: str, header: _Header):
        self.header = header
        self.stream = archive.open(f"{name}.npy")
        self.whole: Array | None = None
        self.next_row = 0
        if header.fortran or not header.shape:
            self.whole = npy.read_array(self.stream, allow_pickle=False)
        else:
            _read_header(self.stream)

    def __enter__(self) -> _Rows:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stream.close()

    def take(self, count: int | None) -> Array:
        """The next `count` rows, or the array as it stands."""
        if self.whole is not None:
            start, self.next_row = self.next_row, self.next_row + (count or 0)
            return self.whole if count is None else self.whole[start : start + count]
        shape = self.header.shape if count is None else (count, *self.header.shape[1:])
        size = int(np.prod(shape, dtype=np.int64)) * self.header.dtype.itemsize
        data = self.stream.read(size)
        if len(data) != size:
            raise EOFError("an array ends early")
        return np.frombuffer(data, self.header.dtype).reshape(shape)


def _target(request: Request) -> str:
    if request.preprocess:
        return image_input(request).name
    info = only_input(request.signature)
    if info is None:
        raise DatasetError(
            "an .npy file holds one array, but the model has several inputs; use .npz"
        )
    return info.name
