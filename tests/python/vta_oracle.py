"""Regions of VTA in NumPy, in as many lines as their definition has."""

from typing import Any

import numpy as np
import tvm
from numpy.lib.stride_tricks import sliding_window_view
from tvm import IRModule

from tvm_quant.backend.vta import Add, Convolution, MaxPool, Region
from tvm_quant.backend.vta.partition import PartitionVta
from tvm_quant.ir import constant

CALLEE = "vta_oracle.run"
REGIONS: list[Region] = []


def partitioned(mod: IRModule) -> IRModule:
    """The module with its regions run by the oracle; the one given stays as it is."""
    # Not on import: who collects examples in documentation imports this file a second time.
    tvm.register_global_func(CALLEE, _run, override=True)
    before = tvm.ir.save_json(mod)
    after = PartitionVta(CALLEE, _program_of)(mod)
    assert tvm.ir.save_json(mod) == before
    return after


def _program_of(region: Region) -> list[Any]:
    REGIONS.append(region)
    return [constant(np.int32([len(REGIONS) - 1]))]


def _run(*arguments: Any) -> None:
    place = next(at for at, tensor in enumerate(arguments) if str(tensor.dtype) == "int32")
    region = REGIONS[int(arguments[place].numpy()[0])]
    inputs = [tensor.numpy() for tensor in arguments[:place]]
    for tensor, value in zip(arguments[place + 1 :], run(region, inputs), strict=True):
        tensor.copyfrom(value)


def run(region: Region, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a region."""
    values = {
        name: value.reshape(region.by_name[name].nchw)
        for name, value in zip(region.inputs, inputs, strict=True)
    }
    for layer in region.layers:
        values[layer.output] = _layer(layer, values)
        assert values[layer.output].shape == region.by_name[layer.output].nchw
    return [values[name].reshape(region.by_name[name].shape) for name in region.outputs]


def _layer(layer: Any, values: dict[str, np.ndarray]) -> np.ndarray:
    if isinstance(layer, MaxPool):
        return _windows(values[layer.data], layer, layer.window, fill=-128).max(axis=(4, 5))
    if isinstance(layer, Add):
        lhs, rhs = (values[name].astype("int64") for name in layer.inputs)
        return _requantized(layer, (lhs << layer.lhs_shift) + (rhs << layer.rhs_shift))
    total = _contraction(layer, values[layer.data]) + layer.biases.reshape(1, -1, 1, 1)
    if layer.residual is not None:
        left = layer.residual.shifts(layer.out_channels).reshape(1, -1, 1, 1)
        total = total + (values[layer.residual.tensor].astype("int64") << left)
    return _requantized(layer, total)


def _contraction(layer: Any, data: np.ndarray) -> np.ndarray:
    kernel = layer.kernel.astype("float64")  # exact: sums stay below 2**53
    if not isinstance(layer, Convolution):
        return np.einsum("nchw,ocij->nohw", data, kernel).astype("int64")
    windows = _windows(data, layer, kernel.shape[2:], dilation=layer.dilation)
    samples, channels, *rest = windows.shape
    grouped = windows.reshape(samples, layer.groups, channels // layer.groups, *rest)
    kernel = kernel.reshape(layer.groups, -1, *kernel.shape[1:])
    total = np.einsum("ngchwij,gocij->ngohw", grouped, kernel, optimize=True)
    return total.reshape(samples, -1, *rest[:2]).astype("int64")


def _windows(data: np.ndarray, layer: Any, size: Any, *, dilation=(1, 1), fill=0) -> np.ndarray:
    """(N, C, OH, OW, KH, KW)."""
    top, left, bottom, right = layer.padding
    widths = ((0, 0), (0, 0), (top, bottom), (left, right))
    padded = np.pad(data, widths, constant_values=fill)
    reach = [(extent - 1) * step + 1 for extent, step in zip(size, dilation, strict=True)]
    every = sliding_window_view(padded, reach, axis=(2, 3))
    rows, columns = layer.strides
    return every[:, :, ::rows, ::columns, :: dilation[0], :: dilation[1]]


def _requantized(layer: Any, total: np.ndarray) -> np.ndarray:
    shift = layer.shifts(total.shape[1]).astype("int64").reshape(1, -1, 1, 1)
    half = np.where(shift > 0, np.int64(1) << (shift - 1).clip(0), 0)
    assert np.abs(total).max() + half.max() < 2**31, "a sum that int32 does not hold"
    scaled = np.where(shift > 0, (total + half) >> shift.clip(0), total << (-shift).clip(0))
    return np.clip(scaled, layer.low, layer.high).astype("int8")
