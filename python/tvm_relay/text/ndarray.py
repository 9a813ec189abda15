"""Tensors and parameter files as TVM of Relay's time wrote them (little-endian).

    tensor      magic u64, reserved u64, device type i32, device id i32, ndim i32,
                dtype code u8, bits u8, lanes u16, shape i64 x ndim, bytes i64, data
    parameters  magic u64, reserved u64, names (count u64, each length u64 and bytes),
                count u64, tensors

Source: the layouts that `NDArray.save` and `relay.save_param_dict` produce, TVM 0.6 to 0.19.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tvm_quant.errors import FrontendError

_TENSOR_MAGIC = 0xDD5E40F096B4A13F
_PARAMS_MAGIC = 0xF7E58D4F05049CB7
_HEADER = struct.Struct("<QQiiiBBH")
_CPU = 1

#: (code, bits) of the dtypes that occur; bool is one bit, kept in a byte.
_DTYPES: dict[tuple[int, int], np.dtype[Any]] = {
    **{(0, bits): np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{(1, bits): np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    **{(2, bits): np.dtype(f"float{bits}") for bits in (16, 32, 64)},
    (1, 1): np.dtype(bool),
    (4, 16): np.dtype(ml_dtypes.bfloat16),
}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}


def read_tensor(data: bytes) -> npt.NDArray[Any]:
    """One tensor.

    Raises:
        FrontendError: no such tensor, cut short, or of a dtype that has no counterpart.
    """
    reader = _Reader(data, "This tensor")
    return reader.tensor()


def write_tensor(array: npt.NDArray[Any]) -> bytes:
    """The bytes of one tensor, any shape.

    Raises:
        FrontendError: a dtype that the format does not have.

    >>> read_tensor(write_tensor(np.arange(3)))
    array([0, 1, 2])
    """
    if array.dtype not in _CODES:
        raise FrontendError(f"A tensor of dtype {array.dtype} cannot be written for Relay.")
    code, bits = _CODES[array.dtype]
    header = _HEADER.pack(_TENSOR_MAGIC, 0, _CPU, 0, array.ndim, code, bits, 1)
    shape = struct.pack(f"<{array.ndim}q", *array.shape)
    data = np.ascontiguousarray(array).tobytes()
    return b"".join((header, shape, struct.pack("<q", len(data)), data))


def load_param_dict(data: bytes) -> dict[str, npt.NDArray[Any]]:
    """Parameters by name, from the bytes of a parameter file.

    Raises:
        FrontendError: no parameter file, cut short, or with a tensor nobody can read.

    >>> load_param_dict(save_param_dict({"w": np.float32([1, 2])}))
    {'w': array([1., 2.], dtype=float32)}
    """
    reader = _Reader(bytes(data), "This parameter file")
    magic = reader.unpack("<Q")
    if magic != _PARAMS_MAGIC:
        raise FrontendError(
            f"This parameter file starts with {magic:#018x}; expected {_PARAMS_MAGIC:#018x}, as "
            "relay.save_param_dict writes it."
        )
    reader.unpack("<Q")
    names = [reader.string() for _ in range(reader.count(8))]
    tensors = reader.count(_HEADER.size)
    if tensors != len(names):
        raise FrontendError(f"This parameter file has {len(names)} names for {tensors} tensors.")
    return {name: reader.tensor() for name in names}


def save_param_dict(params: Mapping[str, npt.ArrayLike]) -> bytes:
    """The bytes of a parameter file, as TVM reads it back.

    Args:
        params: arrays of any shape by name.
    """
    names = [name.encode() for name in params]
    return b"".join(
        (
            struct.pack("<QQQ", _PARAMS_MAGIC, 0, len(names)),
            *(struct.pack("<Q", len(name)) + name for name in names),
            struct.pack("<Q", len(names)),
            *(write_tensor(np.asarray(value)) for value in params.values()),
        )
    )


class _Reader:
    """Reads from the front of some bytes."""

    def __init__(self, data: bytes, what: str):
        self._data = data
        self._position = 0
        self._what = what

    def take(self, size: int) -> bytes:
        """The next bytes."""
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise FrontendError(
                f"{self._what} is cut short: {size} bytes are due at byte {self._position} of "
                f"{len(self._data)}. Copy the file again."
            )
        piece = self._data[self._position : end]
        self._position = end
        return piece

    def unpack(self, form: str) -> Any:
        """The next number."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def count(self, least: int) -> int:
        """A number of things, each at least so many bytes."""
        count = self.unpack("<Q")
        if count * least > len(self._data) - self._position:
            raise FrontendError(
                f"{self._what} is cut short or damaged: {count} entries do not fit into its "
                f"{len(self._data)} bytes."
            )
        return int(count)

    def string(self) -> str:
        """A name."""
        return self.take(self.count(1)).decode("utf-8", "replace")

    def tensor(self) -> npt.NDArray[Any]:
        """A tensor."""
        magic, _, _, _, ndim, code, bits, lanes = _HEADER.unpack(self.take(_HEADER.size))
        if magic != _TENSOR_MAGIC:
            raise FrontendError(
                f"{self._what} starts a tensor with {magic:#018x}; expected {_TENSOR_MAGIC:#018x}."
            )
        dtype = _DTYPES.get((code, bits))
        if dtype is None or lanes != 1:
            raise FrontendError(
                f"{self._what} has dtype code {code} with {bits} bits and {lanes} lanes, which "
                "Relax does not have."
            )
        shape = struct.unpack(f"<{ndim}q", self.take(8 * ndim)) if ndim > 0 else ()
        size = self.unpack("<q")
        if size != math.prod(shape) * dtype.itemsize or any(dim < 0 for dim in shape):
            raise FrontendError(
                f"{self._what} is damaged: {size} bytes for shape {shape} and dtype {dtype}."
            )
        return np.frombuffer(self.take(size), dtype).reshape(shape).copy()
