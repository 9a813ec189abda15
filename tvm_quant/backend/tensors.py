"""Between NumPy arrays and tensors of TVM.

Making a tensor, and `Tensor.numpy`, take longer than many a small network runs; copying memory does
not.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm

Array = npt.NDArray[Any]

#: Bytes that TVM's kernels may rely on.
ALIGNMENT = 64

_CPU = tvm.cpu().dlpack_device_type()
# Kinds of types that NumPy gives to DLPack in every release: no bool, bfloat16 or float8.
_PLAIN = frozenset("iuf")
# Types of which NumPy takes DLPack views, whatever its release.
_VIEWED = frozenset(
    f"{kind}{bits}"
    for kind, widths in (("int", (8, 16, 32, 64)), ("uint", (8, 16, 32, 64)), ("float", (32, 64)))
    for bits in widths
)


class Inputs:
    """The input tensors of a function, each thread with its own.

    Args:
        device: of the tensors; those of a CPU are kept, others are made for each call.
    """

    def __init__(self, device: tvm.runtime.Device):
        self._device = device
        self._keeps = device.dlpack_device_type() == _CPU
        self._local = threading.local()

    def filled(self, arrays: Sequence[Array]) -> list[tvm.runtime.Tensor]:
        """Tensors that hold copies of `arrays`, valid until the next call in this thread."""
        if not self._keeps or not all(map(_has_view, arrays)):
            return [tvm.runtime.tensor(array, self._device) for array in arrays]
        kept = self._local.__dict__.setdefault("kept", [None] * len(arrays))
        for index, array in enumerate(arrays):
            pair = kept[index]
            if pair is None or pair[0].shape != array.shape or pair[0].dtype != array.dtype:
                pair = kept[index] = _shared(array)
            np.copyto(pair[0], array)
        return [tensor for _, tensor in kept]


def _has_view(array: Array) -> bool:
    return array.size > 0 and array.dtype.kind in _PLAIN


def _shared(array: Array) -> tuple[Array, tvm.runtime.Tensor]:
    """An array of the same shape and type, and a tensor of the same memory."""
    room = np.empty(array.nbytes + ALIGNMENT, "uint8")
    start = -room.ctypes.data % ALIGNMENT
    buffer = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    return buffer, tvm.runtime.from_dlpack(buffer)


def arrays_of(value: Any) -> list[Array]:
    """Copies of the tensors in a result, depth first; arrays as they are, shapes left out."""
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, tvm.runtime.Tensor):
        return [as_array(value)]
    if isinstance(value, tvm.runtime.ShapeTuple):
        return []
    return [array for field in value for array in arrays_of(field)]


def as_array(tensor: tvm.runtime.Tensor) -> Array:
    """A copy of a tensor."""
    if tensor.dtype in _VIEWED and tensor.device.dlpack_device_type() == _CPU:
        return np.array(np.from_dlpack(tensor))
    return np.asarray(tensor.numpy())
