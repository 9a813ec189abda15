"""What layers say that their outputs are, in the numbers of `meaning`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.backend.vta.layer import Add, Convolution, Dense, Layer, MaxPool, Region
from tvm_quant.errors import BackendError

Array = npt.NDArray[Any]
Tensors = Callable[[str], Array]  # (N, blocks, H, W) of a name

LOWEST_CODE, HIGHEST_CODE = -128, 127
MOST_COMMON = 24  # bits that two sides of a comparison may differ by


@dataclass(frozen=True, kw_only=True)
class Expected:
    """An output, element by element in the order of its memory.

    Attributes:
        sums: numbers before the shift, uint64; others: those that are as good, or None.
        shift: number of the shift to the right; unit: of a shift by 1, uint64.
        last: whether an element is of the last block, in which lanes may be unused.
        low, high: bounds of the clip.
        maximum: whether it is a maximum: without shift and clip.
    """

    sums: Array
    shift: Array
    unit: Array
    last: Array
    low: int
    high: int
    others: Array | None = None
    maximum: bool = False

    def differs(self, units: Array, sums: Array, shift: Array) -> str:
        """In what numbers of elements differ: "" if in nothing.

        A sum times 2**k that is shifted by k bits more is the same.
        """
        more = shift - self.shift[units]
        steps = np.arange(-MOST_COMMON, MOST_COMMON + 1)
        which = more[:, None] == steps.astype(np.int64).view(np.uint64) * self.unit[units, None]
        if not which.any(axis=1).all():
            return "another shift"
        bits = steps[which.argmax(axis=1)]
        up, down = (np.uint64(1) << b.clip(0).astype(np.uint64) for b in (bits, -bits))
        same = sums * down == self.sums[units] * up
        if self.others is not None:
            same |= sums * down == self.others[units] * up
        return "" if same.all() else "another sum"


class Projection:
    """The random vectors: r of input lanes, and u of output lanes.

    Lanes beyond a layer's channels hold what nothing reads. In a second column, u is 0 there.
    """

    def __init__(self, region: Region, lanes: int):
        rng = np.random.default_rng(0)
        self.lanes = lanes
        self.r, self.u = rng.integers(0, 2**64, (2, lanes), np.uint64)
        self.channels = {
            layer.name: region.by_name[layer.output].nchw[1] for layer in region.layers
        }
        self.columns = 1 if all(c % lanes == 0 for c in self.channels.values()) else 2

    def vectors(self, layer: str) -> Array:
        """u, and u of the last block: (columns, lanes)."""
        used = (self.channels.get(layer, 0) - 1) % self.lanes + 1
        masked = np.where(np.arange(self.lanes) < used, self.u, np.uint64(0))
        return np.stack([self.u, masked][: self.columns])

    def of_weights(self, layer: str, data: Array) -> Array:
        """int8 elements, (n, lanes out * lanes in), to (columns, n)."""
        wide = data.reshape(-1, self.lanes, self.lanes).astype(np.int64).view(np.uint64)
        return np.asarray(self.vectors(layer) @ (wide @ self.r).T)

    def of_sums(self, layer: str, values: Array) -> Array:
        """int64 (n, lanes) to (columns, n)."""
        return np.asarray(self.vectors(layer) @ values.astype(np.int64).view(np.uint64).T)

    def ones(self, layer: str) -> Array:
        """The number of a vector of ones, (columns,)."""
        return np.asarray(self.vectors(layer).sum(axis=1, dtype=np.uint64))


def expectations(
    region: Region, projection: Projection, tensors: Tensors
) -> Callable[[Layer], Expected]:
    """What each layer of a region says, computed when it is asked for.

    The function raises BackendError where a layer's sums may leave int32.
    """
    codes = dict.fromkeys(region.inputs, (LOWEST_CODE, HIGHEST_CODE))
    for layer in region.layers:
        if isinstance(layer, MaxPool):
            codes[layer.output] = (LOWEST_CODE, codes[layer.data][1])
        else:
            codes[layer.output] = (getattr(layer, "low", -128), getattr(layer, "high", 127))

    @cache
    def expected(layer: Layer) -> Expected:
        shape = region.by_name[layer.output].nchw
        if isinstance(layer, MaxPool):
            return _of_pool(layer, shape, projection, tensors)
        assert isinstance(layer, Add | Convolution | Dense)
        _check_range(layer, codes)
        if isinstance(layer, Add):
            return _of_add(layer, shape, projection, tensors)
        return _of_contraction(layer, shape, projection, tensors)

    return expected


def _of_pool(
    layer: MaxPool, shape: tuple[int, ...], projection: Projection, tensors: Tensors
) -> Expected:
    data = tensors(layer.data)
    columns = _by_block(projection, layer.name, data.shape[1], projection.r)
    lowest = _by_block(projection, layer.name, data.shape[1], np.uint64(LOWEST_CODE % 2**64))
    values = data * columns.reshape(1, -1, 1, 1)
    fill = np.broadcast_to(lowest.reshape(1, -1, 1, 1), values.shape)
    top, left, bottom, right = layer.padding
    n, blocks, height, width = values.shape
    size = (n, blocks, height + top + bottom, width + left + right)
    padded = np.empty(size, np.uint64)
    padded[:] = fill[:, :, :1, :1]
    padded[:, :, top : top + height, left : left + width] = values
    sums = np.broadcast_to(fill[:, :, :1, :1], (n, blocks, *shape[2:])).copy()
    for dy, dx in product(range(layer.window[0]), range(layer.window[1])):
        sums = np.maximum(sums, _tap(padded, dy, dx, layer.strides, shape))
    zero = np.zeros(sums.size, np.uint64)
    return Expected(
        sums=sums.reshape(-1),
        shift=zero,
        unit=zero,
        last=_last(sums),
        low=LOWEST_CODE,
        high=HIGHEST_CODE,
        maximum=True,
    )


def _of_add(
    layer: Add, shape: tuple[int, ...], projection: Projection, tensors: Tensors
) -> Expected:
    lhs, rhs = tensors(layer.lhs), tensors(layer.rhs)
    unit = _by_block(projection, layer.name, lhs.shape[1], projection.r).reshape(1, -1, 1, 1)
    sums = unit * ((lhs << np.uint64(layer.lhs_shift)) + (rhs << np.uint64(layer.rhs_shift)))
    shift = int(np.max(layer.shift))
    ones = _by_block(projection, layer.name, lhs.shape[1], np.uint64(1)).reshape(1, -1, 1, 1)
    rounding = ones * np.uint64((1 << (shift - 1)) if shift > 0 else 0)
    # codes are multiples of a power of two: rounding changes nothing below it
    exact = shift <= min(layer.lhs_shift, layer.rhs_shift)
    count = np.broadcast_to(ones, sums.shape).reshape(-1)
    return Expected(
        sums=(sums + rounding).reshape(-1),
        others=sums.reshape(-1) if exact else None,
        shift=count * np.uint64(shift % 2**64),
        unit=count,
        last=_last(sums),
        low=layer.low,
        high=layer.high,
    )


def _of_contraction(
    layer: Convolution | Dense, shape: tuple[int, ...], projection: Projection, tensors: Tensors
) -> Expected:
    lanes = projection.lanes
    vector = _vector(projection, layer.out_channels)
    data = tensors(layer.data)
    kernel = _kernel(layer, vector, data.shape[1], projection)
    strides, dilation, padding = (1, 1), (1, 1), (0, 0, 0, 0)
    if isinstance(layer, Convolution):
        strides, dilation, padding = layer.strides, layer.dilation, layer.padding
    top, left, bottom, right = padding
    padded = np.pad(data, ((0, 0), (0, 0), (top, bottom), (left, right)))
    sums = np.zeros((shape[0], len(kernel), *shape[2:]), np.uint64)
    for dy, dx in product(range(kernel.shape[2]), range(kernel.shape[3])):
        taps = _tap(padded, dy * dilation[0], dx * dilation[1], strides, shape)
        flat = taps.reshape(*taps.shape[:2], -1)
        sums += (kernel[:, :, dy, dx] @ flat).reshape(sums.shape)
    shifts = layer.shifts(layer.out_channels).astype(np.int64)
    added = layer.biases.astype(np.int64)
    added = added + np.where(shifts > 0, 1 << (shifts - 1).clip(0), 0)
    sums += _blocks(added, vector, lanes).reshape(1, -1, 1, 1)
    if layer.residual is not None:
        left_shifts = layer.residual.shifts(layer.out_channels).astype(np.uint64)
        r = np.resize(projection.r, len(vector))[: layer.out_channels]
        units = _blocks(r << left_shifts, vector, lanes)
        sums += units.reshape(1, -1, 1, 1) * tensors(layer.residual.tensor)

    def spread(values: Array) -> Array:
        blocks = _blocks(values, vector, lanes).reshape(1, -1, 1, 1)
        return np.broadcast_to(blocks, sums.shape).reshape(-1)

    return Expected(
        sums=sums.reshape(-1),
        shift=spread(shifts),
        unit=spread(np.ones_like(shifts)),
        last=_last(sums),
        low=layer.low,
        high=layer.high,
    )


def _kernel(
    layer: Convolution | Dense, vector: Array, in_blocks: int, projection: Projection
) -> Array:
    """The numbers of the weights, uint64 (blocks out, blocks in, KH, KW)."""
    lanes = projection.lanes
    weight = layer.kernel.astype(np.int64).view(np.uint64)
    outputs, per_group = weight.shape[:2]
    groups = layer.groups if isinstance(layer, Convolution) else 1
    channel = np.arange(outputs)[:, None] // (outputs // groups) * per_group + np.arange(per_group)
    scaled = weight * (vector[:outputs, None] * projection.r[channel % lanes])[..., None, None]
    numbers = np.zeros((len(vector) // lanes, in_blocks, *weight.shape[2:]), np.uint64)
    if groups > 1:
        blocks = np.broadcast_to(np.arange(outputs)[:, None] // lanes, channel.shape)
        np.add.at(numbers, (blocks, channel // lanes), scaled)
        return numbers
    pads = [(0, len(vector) - outputs), (0, in_blocks * lanes - per_group), (0, 0), (0, 0)]
    padded = np.pad(scaled, pads).reshape(len(numbers), lanes, in_blocks, lanes, *weight.shape[2:])
    return np.asarray(padded.sum(axis=(1, 3), dtype=np.uint64))


def _check_range(layer: Add | Convolution | Dense, codes: dict[str, tuple[int, int]]) -> None:
    """Raise where sums may leave int32, by the bounds of what the layer reads."""
    least, most = _of_codes(layer, codes)
    if isinstance(layer, Convolution | Dense):
        least, most = least + layer.biases, most + layer.biases
        if layer.residual is not None:
            scale = 1 << layer.residual.shifts(layer.out_channels).astype(np.int64)
            low, high = codes[layer.residual.tensor]
            least, most = least + low * scale, most + high * scale
    shifts = layer.shifts(len(least)).astype(np.int64)
    left, rounding = 1 << (-shifts).clip(0), np.where(shifts > 0, 1 << (shifts - 1).clip(0), 0)
    least, most = least * left, most * left + rounding
    wrong = np.flatnonzero((least < -(2**31)) | (most >= 2**31))
    if wrong.size:
        channel = int(wrong[0])
        raise BackendError(
            f"VTA layer '{layer.name}': sums of channel {channel} reach from {least[channel]} to "
            f"{most[channel]}, which int32 does not hold."
        )


def _of_codes(
    layer: Add | Convolution | Dense, codes: dict[str, tuple[int, int]]
) -> tuple[Array, Array]:
    """Least and most that the codes alone give, int64 (C,)."""
    if isinstance(layer, Add):
        (a, b), (c, d) = codes[layer.lhs], codes[layer.rhs]
        lhs, rhs = 1 << layer.lhs_shift, 1 << layer.rhs_shift
        return np.array([a * lhs + c * rhs]), np.array([b * lhs + d * rhs])
    low, high = codes[layer.data]
    low, high = min(low, 0), max(high, 0)  # padding
    weight = layer.kernel.reshape(layer.out_channels, -1).astype(np.int64)
    positive, negative = weight.clip(0).sum(axis=1), weight.clip(None, 0).sum(axis=1)
    return positive * low + negative * high, positive * high + negative * low


def _vector(projection: Projection, channels: int) -> Array:
    """The vector u repeated for each block, 0 beyond the channels."""
    count = -(-channels // projection.lanes) * projection.lanes
    return np.where(np.arange(count) < channels, np.resize(projection.u, count), np.uint64(0))


def _blocks(values: Array, vector: Array, lanes: int) -> Array:
    """The numbers of a value per channel: uint64 (blocks,)."""
    padded = np.zeros(len(vector), np.uint64)
    padded[: len(values)] = values if values.dtype == np.uint64 else values.view(np.uint64)
    return np.asarray((padded * vector).reshape(-1, lanes).sum(axis=1, dtype=np.uint64))


def _by_block(projection: Projection, layer: str, blocks: int, lanes: Any) -> Array:
    """The number of a vector of lanes in each block: uint64 (blocks,)."""
    vectors = projection.vectors(layer)
    numbers = np.asarray((vectors * lanes).sum(axis=1, dtype=np.uint64))
    return np.asarray(np.where(np.arange(blocks) == blocks - 1, numbers[-1], numbers[0]))


def _tap(
    padded: Array, dy: int, dx: int, strides: tuple[int, int], shape: tuple[int, ...]
) -> Array:
    rows = slice(dy, dy + (shape[2] - 1) * strides[0] + 1, strides[0])
    columns = slice(dx, dx + (shape[3] - 1) * strides[1] + 1, strides[1])
    return padded[:, :, rows, columns]


def _last(sums: Array) -> Array:
    blocks = sums.shape[1]
    last = np.arange(blocks).reshape(1, -1, 1, 1) == blocks - 1
    return np.broadcast_to(last, sums.shape).reshape(-1)
