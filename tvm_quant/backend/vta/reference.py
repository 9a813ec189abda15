"""What layers compute, in NumPy: every program has to give the same, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.backend.vta.layer import Add, Convolution, Dense, Layer, MaxPool, Region, Weighted

Array = npt.NDArray[Any]


def run_region(region: Region, *inputs: Array) -> list[Array]:
    """Outputs of a region, int8.

    Args:
        inputs: int8, one for each of `region.inputs`, of its shape.
    """
    values = {
        name: value.reshape(region.by_name[name].nchw)
        for name, value in zip(region.inputs, inputs, strict=True)
    }
    for layer in region.layers:
        values[layer.output] = REFERENCES[type(layer)](layer, values)
    return [values[name].reshape(region.by_name[name].shape) for name in region.outputs]


def _weighted(layer: Weighted, values: dict[str, Array], sums: Array) -> Array:
    channels = layer.out_channels
    sums = sums + layer.biases.astype(np.int64)[:, None, None]
    if layer.residual is not None:
        shift = layer.residual.shifts(channels)[:, None, None]
        sums = sums + (values[layer.residual.tensor].astype(np.int64) << shift)
    return requantize(sums, layer.shifts(channels)[:, None, None], layer.low, layer.high)


def requantize(sums: Array, shift: Array, low: int, high: int) -> Array:
    """Shift right with rounding half up, or left, and clip.

    >>> requantize(np.array([3, -3, 1000]), np.array([1, 1, 1]), -128, 127)
    array([  2,  -1, 127], dtype=int8)
    """
    right, left = np.maximum(shift, 0).astype(np.int64), np.maximum(-shift, 0).astype(np.int64)
    half = np.where(right > 0, 1 << np.maximum(right - 1, 0), 0)
    return np.asarray(np.clip(((sums + half) >> right) << left, low, high), np.int8)


def _windows(data: Array, window: tuple[int, int], layer: Any, dilation: tuple[int, int]) -> Array:
    reach = tuple((extent - 1) * step + 1 for extent, step in zip(window, dilation, strict=True))
    seen = np.lib.stride_tricks.sliding_window_view(data, reach, axis=(2, 3))
    rows, columns = layer.strides
    return np.asarray(seen[:, :, ::rows, ::columns, :: dilation[0], :: dilation[1]])


def _padded(data: Array, padding: tuple[int, int, int, int], value: int) -> Array:
    top, left, bottom, right = padding
    return np.pad(data, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=value)


def _convolution(layer: Convolution, values: dict[str, Array]) -> Array:
    data = _padded(values[layer.data], layer.padding, 0)
    windows = _windows(data, layer.kernel.shape[2:], layer, layer.dilation)
    # Sums of products stay below 2**53: float64 is exact.
    batch, channels, *plane = windows.shape
    grouped = windows.reshape(batch, layer.groups, channels // layer.groups, *plane)
    kernel = layer.kernel.reshape(layer.groups, -1, *layer.kernel.shape[1:])
    sums = np.einsum(
        "ngcyxhw,gochw->ngoyx",
        grouped.astype(np.float64),
        kernel.astype(np.float64),
        optimize=True,
    ).astype(np.int64)
    return _weighted(layer, values, sums.reshape(batch, layer.out_channels, *plane[:2]))


def _dense(layer: Dense, values: dict[str, Array]) -> Array:
    rows = values[layer.data].reshape(len(values[layer.data]), -1)
    sums = rows.astype(np.int64) @ layer.weight.astype(np.int64).T
    return _weighted(layer, values, sums[:, :, None, None])


def _add(layer: Add, values: dict[str, Array]) -> Array:
    lhs = values[layer.lhs].astype(np.int64) << layer.lhs_shift
    rhs = values[layer.rhs].astype(np.int64) << layer.rhs_shift
    return requantize(lhs + rhs, layer.shifts(1), layer.low, layer.high)


def _max_pool(layer: MaxPool, values: dict[str, Array]) -> Array:
    data = _padded(values[layer.data], layer.padding, -128)
    return np.asarray(_windows(data, layer.window, layer, (1, 1)).max(axis=(4, 5)))


REFERENCES: dict[type[Layer], Callable[[Any, dict[str, Array]], Array]] = {
    Convolution: _convolution,
    Dense: _dense,
    Add: _add,
    MaxPool: _max_pool,
}
