"""The `.params` files of MXNet: named arrays, in the binary format of `mx.nd.save`.

    u64 0x112, u64 0, u64 count, that many arrays, u64 count, that many names (u64 length, bytes)

An array begins with a magic number; before the first of these, with its rank.

    magic      since   between the magic and the device
    F993FACA   2.0     i32 storage, i32 rank, i64 sizes; rank 0 is a scalar
    F993FAC9   1.0     i32 storage, i32 rank, i64 sizes; rank 0 is an array that is not there
    F993FAC8   0.11    i32 rank, i64 sizes
    (rank)             u32 sizes

Then follow the device (i32 kind, i32 number), the type (i32) and the elements.

Source: src/ndarray/ndarray.cc of MXNet 1.9.1, NDArray::Save and NDArray::LegacyLoad.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.errors import FrontendError

Array = npt.NDArray[Any]

LIST_MAGIC = 0x112
V1, V2, V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
DENSE = 0

#: More axes has no array of MXNet.
MOST_AXES = 32

#: By number of the type.
DTYPES = {
    0: "float32",
    1: "float64",
    2: "float16",
    3: "uint8",
    4: "int32",
    5: "int8",
    6: "int64",
    7: "bool",
    8: "int16",
    9: "uint16",
    10: "uint32",
    11: "uint64",
}


def read_params(path: Path) -> dict[str, Array]:
    """The arrays of a file, by names without the prefixes `arg:` and `aux:`.

    Raises:
        FrontendError: no such file, or one that is damaged or of another format.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FrontendError(f"Cannot read the parameters {path}: {error.strerror}.") from error
    return without_prefixes(parse_params(data, str(path)))


def parse_params(data: bytes, where: str = "these bytes") -> dict[str, Array]:
    """The arrays in the bytes of a file, by the names that stand there.

    Args:
        data: of the whole file.
        where: how messages name it.

    Raises:
        FrontendError: truncated, damaged, of another format, or with sparse arrays.
    """
    reader = _Reader(data, where)
    if reader.integer(8) != LIST_MAGIC:
        raise FrontendError(
            f"{where} holds no MXNet parameters: it does not start with {LIST_MAGIC:#x}. Expected "
            "is a file that `export`, `save_checkpoint` or `mx.nd.save` wrote."
        )
    reader.integer(8)
    arrays = [_array(reader, index) for index in range(reader.count("arrays"))]
    names = [reader.text() for _ in range(reader.count("names"))]
    if len(names) != len(arrays):
        raise FrontendError(
            f"{where} has {len(arrays)} arrays and {len(names)} names; expected a name for each. "
            "Save the parameters as a dictionary."
        )
    return dict(zip(names, arrays, strict=True))


def without_prefixes(arrays: dict[str, Array]) -> dict[str, Array]:
    """Names as the nodes have them: checkpoints say `arg:` or `aux:` in front.

    >>> list(without_prefixes({"arg:fc_weight": np.zeros(1), "mean": np.zeros(1)}))
    ['fc_weight', 'mean']
    """
    return {name.removeprefix("arg:").removeprefix("aux:"): a for name, a in arrays.items()}


@dataclass
class _Reader:
    """A position in the bytes; nothing is read behind their end."""

    data: bytes
    where: str
    position: int = 0

    def bytes(self, count: int) -> bytes:
        end = self.position + count
        if end > len(self.data):
            raise FrontendError(
                f"{self.where} ends after {len(self.data)} bytes, where {end} are needed. The file "
                "is truncated or damaged; copy it again."
            )
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def integer(self, width: int, *, signed: bool = False) -> int:
        return int.from_bytes(self.bytes(width), "little", signed=signed)

    def count(self, what: str) -> int:
        number = self.integer(8)
        if number > len(self.data) - self.position:
            raise damaged(self.where, f"it says that there are {number} {what}")
        return number

    def text(self) -> str:
        try:
            return self.bytes(self.count("characters in a name")).decode()
        except UnicodeDecodeError as error:
            raise damaged(self.where, "a name is no UTF-8 text") from error


def _array(reader: _Reader, index: int) -> Array:
    magic = reader.integer(4)
    if magic in (V2, V3):
        storage = reader.integer(4, signed=True)
        if storage != DENSE:
            raise FrontendError(
                f"Array {index} of {reader.where} is sparse (storage type {storage}); only dense "
                "ones are read. Convert it with tostype('default') and save it again."
            )
    rank = reader.integer(4, signed=True) if magic in (V1, V2, V3) else magic
    if not 0 <= rank <= MOST_AXES:
        raise damaged(reader.where, f"array {index} has {rank} axes")
    if rank == 0 and magic != V3:
        return np.zeros(0, "float32")
    width = 8 if magic in (V1, V2, V3) else 4
    shape = [reader.integer(width, signed=width == 8) for _ in range(rank)]
    if min(shape, default=0) < 0:
        raise damaged(reader.where, f"array {index} has the shape {tuple(shape)}")
    reader.bytes(8)  # the device that held it
    flag = reader.integer(4, signed=True)
    if flag not in DTYPES:
        raise FrontendError(
            f"Array {index} of {reader.where} has type number {flag}; expected 0 to "
            f"{max(DTYPES)}. Cast the parameters to float32 and save them again."
        )
    dtype = np.dtype(DTYPES[flag]).newbyteorder("<")
    elements = reader.bytes(math.prod(shape) * dtype.itemsize)
    return np.frombuffer(elements, dtype).reshape(shape).astype(DTYPES[flag])


def damaged(where: str, what: str) -> FrontendError:
    """The error for a file that contradicts itself."""
    return FrontendError(f"{where} is damaged: {what}. Copy or save it again.")
