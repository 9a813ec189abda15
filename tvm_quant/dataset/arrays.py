"""Turning what users hold (tensors of any framework, lists, images) into NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

LABEL_NAMES = ("label", "labels", "y")
"""Names under which a mapping or an `.npz` may hold the labels."""


def to_numpy(value: Any) -> Array:
    """Copy-free where the framework allows it.

    Takes NumPy arrays, torch tensors (on any device, with or without gradient), objects with
    `.asnumpy()` (MXNet) or `.numpy()` (TVM, TensorFlow), nested lists of numbers, and anything
    NumPy converts. bfloat16 becomes float32. What is no array of numbers comes back with a dtype
    that the checks refuse.
    """
    if isinstance(value, np.ndarray):
        array = value
    elif hasattr(value, "asnumpy"):
        array = value.asnumpy()
    elif hasattr(value, "detach"):
        array = _from_torch(value)
    elif hasattr(value, "numpy") and callable(value.numpy):
        array = value.numpy()
    else:
        array = _from_python(value)
    array = np.asarray(array)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def is_tensor(value: Any) -> bool:
    """True for one tensor, False for a container of tensors (mapping, sequence, batch object).

    >>> is_tensor([[1, 2], [3, 4]]), is_tensor((np.zeros(3), 1))
    (True, False)
    """
    if isinstance(value, (list, tuple)):
        return not any(_holds_tensor(item) for item in value)
    return isinstance(value, (int, float)) or _has_data(value)


def _holds_tensor(item: Any) -> bool:
    if isinstance(item, (list, tuple)):
        return any(_holds_tensor(part) for part in item)
    return isinstance(item, (str, bytes, Mapping)) or _has_data(item)


def _has_data(value: Any) -> bool:
    if isinstance(value, np.generic):
        return False
    protocols = ("asnumpy", "detach", "numpy", "__array__", "__array_interface__", "__dlpack__")
    return any(hasattr(value, name) for name in protocols)


def _from_torch(value: Any) -> Any:
    tensor = value.detach().cpu()
    return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()


def _from_python(value: Any) -> Array:
    try:
        return np.asarray(value)
    except (ValueError, TypeError):  # ragged lists
        return np.asarray(None, dtype=object)
