"""Does an array fit an input of the model? Rank, dimensions, dtype, NaN and Inf."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tvm_quant.dataset.arrays import Array
from tvm_quant.dataset.bind import shape_text
from tvm_quant.errors import DatasetError
from tvm_quant.ir import TensorInfo


def is_batched(signature: Sequence[TensorInfo]) -> bool:
    """True where axis 0 of all inputs counts samples: all symbolic, or all of the same size."""
    if not signature or any(not info.shape for info in signature):
        return False
    return len({info.shape[0] for info in signature}) == 1


def conform(array: Array, info: TensorInfo, where: str, *, batched: bool) -> Array:
    """Give `array` the dtype and the rank of the input.

    Args:
        array: (samples, ...) as `info.shape`, or one sample without that axis when `batched`.
        batched: axis 0 counts samples, so it may differ from the size in `info.shape`.

    Returns:
        An array of `info.dtype` and of the rank of `info.shape`.

    Raises:
        DatasetError: it does not fit; the message names the tensor.
    """
    return _with_dtype(_with_shape(array, info, where, batched), info, where)


def bad_samples(array: Array) -> npt.NDArray[np.bool_]:
    """Which rows hold NaN or Inf: bool, (samples,)."""
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return np.zeros(len(array), np.bool_)
    finite = np.isfinite(array.reshape(len(array), -1))
    rows: npt.NDArray[np.bool_] = np.logical_not(np.all(finite, axis=1))
    return rows


def what_is_bad(row: Array) -> str:
    """In words: "NaN", "Inf" or "NaN and Inf"."""
    kinds = [name for name, test in (("NaN", np.isnan), ("Inf", np.isinf)) if test(row).any()]
    return " and ".join(kinds)


def _with_shape(array: Array, info: TensorInfo, where: str, batched: bool) -> Array:
    if batched and array.ndim == len(info.shape) - 1 and _fits(array.shape, info.shape[1:]):
        return array[None]
    free = 1 if batched else 0
    if array.ndim == len(info.shape) and _fits(array.shape[free:], info.shape[free:]):
        if 0 not in array.shape:
            return array
        raise DatasetError(
            f"{where}: input '{info.name}' is empty, shape {shape_text(array.shape)}"
        )
    raise DatasetError(
        f"{where}: input '{info.name}' has shape {shape_text(array.shape)}, but the model takes "
        f"{shape_text(info.shape)}{_shape_hint(array, info)}"
    )


def _shape_hint(array: Array, info: TensorInfo) -> str:
    if array.ndim == len(info.shape) == 4:
        channels_first = _fits((array.shape[3], *array.shape[1:3]), info.shape[1:])
        channels_last = _fits((*array.shape[2:4], array.shape[1]), info.shape[1:])
        if channels_first or channels_last:
            axes = "(0, 3, 1, 2)" if channels_first else "(0, 2, 3, 1)"
            return f". The channels are on another axis: transpose the data by {axes}"
    if array.dtype == np.uint8 and array.ndim in (3, 4) and array.shape[-1] in (1, 3):
        return ". These look like images: give a preprocessing spec (resize, crop, layout)"
    return ""


def _fits(shape: Sequence[int], wanted: Sequence[int | None]) -> bool:
    return len(shape) == len(wanted) and all(
        want is None or have == want for have, want in zip(shape, wanted, strict=True)
    )


def _with_dtype(array: Array, info: TensorInfo, where: str) -> Array:
    wanted = _numpy_dtype(info)
    if array.dtype == wanted:
        return np.asarray(array, order="C")
    if array.dtype.kind not in "biuf":
        raise DatasetError(
            f"{where}: input '{info.name}' has dtype {array.dtype}, which holds no real numbers; "
            f"the model takes {info.dtype}"
        )
    if wanted.kind == "f" or info.dtype == "bfloat16":
        return _to_float(array, wanted, info, where)
    if wanted.kind in "iu" and array.dtype.kind in "biu":
        return _to_int(array, wanted, info, where)
    raise DatasetError(
        f"{where}: input '{info.name}' has dtype {array.dtype}, but the model takes {info.dtype}; "
        f"{'values such as ids must be integers' if wanted.kind in 'iu' else 'convert the data'}"
    )


def _to_float(array: Array, wanted: np.dtype[np.generic], info: TensorInfo, where: str) -> Array:
    with np.errstate(over="ignore"):
        result = np.asarray(array, wanted, order="C")
    if array.dtype.kind in "iu" and not np.array_equal(result.astype(np.float64), array):
        raise DatasetError(
            f"{where}: input '{info.name}' has {array.dtype} values beyond what {info.dtype} holds "
            f"exactly (largest {np.abs(array.astype(np.float64)).max():g}); convert the data "
            "yourself"
        )
    if array.dtype.kind == "f" and (np.isinf(result) & np.isfinite(array)).any():
        raise DatasetError(
            f"{where}: input '{info.name}' has {array.dtype} values too large for {info.dtype} "
            f"(largest {np.abs(array[np.isfinite(array)]).max():g})"
        )
    return result


def _to_int(array: Array, wanted: np.dtype[np.generic], info: TensorInfo, where: str) -> Array:
    result = np.asarray(array, wanted, order="C")
    if np.array_equal(result, array):
        return result
    raise DatasetError(
        f"{where}: input '{info.name}' has values from {array.min()} to {array.max()}, beyond the "
        f"range of {info.dtype}"
    )


def _numpy_dtype(info: TensorInfo) -> np.dtype[np.generic]:
    try:
        return np.dtype(info.dtype)
    except TypeError:
        pass
    if info.dtype == "bfloat16":
        import ml_dtypes

        bfloat16: np.dtype[np.generic] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    raise DatasetError(f"input '{info.name}' has dtype {info.dtype}, which NumPy data cannot fill")
