"""Tensor expressions of the kernels: what is computed, in the form the schedule rules expect.

Data is channels-last. Weights of a dense contraction are packed as

    weight[o // lanes, *kernel, i, o % lanes]

so that one vector load gives the weights of `lanes` neighbouring output channels. Where the
target multiplies a group of 8-bit weights at once, 2 or 4, `i` is split once more:

    weight[o // lanes, *kernel, i // group, o % lanes, i % group]

Few input channels are grouped with the pixels beside them, as if a row had one channel:

    weight[o // lanes, *kernel[:-1], (column * I + i) // group, o % lanes, (column * I + i) % group]

The data is staged as the type that the instruction reads, unless it already is. Where that only
differs in sign, all values are moved by 128; the caller takes it out of the sums again.

Depthwise weights are `weight[*kernel, channel]`; where a target multiplies four rows at once

    weight[*kernel, channel // lanes, channel % lanes, tap]

with the tap's row last.

The accumulator may be larger than the output (rounded up to whole tiles); the last stage cuts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm_ffi
from tvm import te, tirx

from tvm_quant.backend.cpu.isa import byte_offset

Dim = Any  # an int or a TIR expression
SIGN_BIT = {"int8": -128, "uint8": 128}


@dataclass(frozen=True, kw_only=True)
class Window:
    """Geometry of a convolution over `len(kernel)` spatial axes.

    The input is spread (one pixel every `spread`, zeros between: a transposed convolution), then
    padded with `pad_value` (negative pads cut), then read with `stride` and `dilation`.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pad_before: tuple[int, ...]
    pad_after: tuple[int, ...]
    pad_value: int | float = 0
    spread: tuple[int, ...] = ()  # empty: everywhere 1

    @property
    def is_pointwise(self) -> bool:
        """Whether output and input pixels correspond one to one."""
        return (
            all(k == 1 for k in self.kernel)
            and all(s == 1 for s in self.stride + self.spread)
            and not any(self.pad_before + self.pad_after)
        )

    def extent(self, output: Sequence[Dim]) -> tuple[Dim, ...]:
        """Spatial shape of the padded input that `output` pixels read."""
        return tuple(
            (dim - 1) * stride + (kernel - 1) * dilation + 1
            for dim, kernel, dilation, stride in zip(
                output, self.kernel, self.dilation, self.stride, strict=True
            )
        )

    def at(self, output: Sequence[Dim], tap: Sequence[Dim]) -> tuple[Dim, ...]:
        """Padded input pixel of an output pixel and a kernel tap."""
        return tuple(
            pixel * stride + k * dilation
            for pixel, k, dilation, stride in zip(
                output, tap, self.dilation, self.stride, strict=True
            )
        )


def pointwise_window(rank: int) -> Window:
    """The window of a matrix product: one tap."""
    ones, zeros = (1,) * rank, (0,) * rank
    return Window(kernel=ones, stride=ones, dilation=ones, pad_before=zeros, pad_after=zeros)


def stage(
    data: te.Tensor, window: Window, output: Sequence[Dim], channels: Dim, dtype: str
) -> te.Tensor:
    """A copy of `data` with padding, as `output` pixels of `channels` input channels read it.

    Gives `data` itself where nothing has to be padded or converted. Values of the other 8-bit type
    are moved to its range: see `byte_offset`.
    """
    batches = len(data.shape) - 1 - len(window.kernel)
    spatial, extent = tuple(data.shape[batches:-1]), window.extent(output)
    spread = window.spread or (1,) * len(spatial)
    have = [(dim - 1) * step + 1 for dim, step in zip(spatial, spread, strict=True)]
    fits = all(_fits(need, size) for need, size in zip(extent, have, strict=True))
    pads = any(window.pad_before) or not fits or any(step > 1 for step in spread)
    if not pads and _same(channels, data.shape[-1]) and str(data.dtype) == dtype:
        return data
    offset = byte_offset(str(data.dtype), dtype)
    value = tirx.const(window.pad_value + offset, dtype)

    def element(*index: tirx.Var) -> tirx.Expr:
        batch, pixel, channel = index[:batches], index[batches:-1], index[-1]
        source = [p - before for p, before in zip(pixel, window.pad_before, strict=True)]
        inside: list[tirx.Expr] = []
        geometry = zip(source, have, extent, window.pad_before, spread, strict=True)
        for at, size, need, before, step in geometry:
            if before > 0:
                inside.append(at >= 0)
            if before or not _fits(need, size):
                inside.append(at < size)
            if step > 1:
                inside.append(at % step == 0)
        if not _same(channels, data.shape[-1]):
            inside.append(channel < data.shape[-1])
        pixels = [at // step for at, step in zip(source, spread, strict=True)]
        read = data(*batch, *pixels, channel).astype(dtype)
        if offset:
            read = read ^ tirx.const(SIGN_BIT[dtype], dtype)
        return te.if_then_else(te.all(*inside), read, value) if inside else read

    return te.compute((*data.shape[:batches], *extent, channels), element, name="staged")


def stage_rows(data: te.Tensor, window: Window, output: Sequence[Dim], dtype: str) -> te.Tensor:
    """`stage` for data whose rows are read as if they had one channel: always a copy.

    Args:
        data: (*batch, *spatial, I).
        window: geometry over (*spatial[:-1], spatial[-1] * I).
        output: spatial shape of the pixels that read it.
        dtype: of the copy.

    Returns:
        (*batch, *extent of the window).
    """
    *outer, width, channels = data.shape

    def element(*index: tirx.Var) -> tirx.Expr:
        *lead, at, _ = index
        return data(*lead, at // channels, at % channels)

    rows = te.compute((*outer, width * channels, 1), element, name="row")
    staged = stage(rows, window, output, 1, dtype)
    return te.compute(staged.shape[:-1], lambda *index: staged(*index, 0), name="rows")


def dense(
    data: te.Tensor,
    weight: te.Tensor,
    *,
    window: Window,
    flat: bool,
    rounded: int | None,
    output: Sequence[Dim],
    channels: int,
    groups: int,
    along_row: bool,
    staged_dtype: str,
    dtype: str,
) -> te.Tensor:
    """A convolution (or matrix product) with packed weights.

    Args:
        data: (*batch, *spatial, I).
        weight: packed as above; (O/lanes, *kernel, I/groups/group, lanes, group) or, of single
            input channels, (O/lanes, *kernel, I/groups, lanes).
        window: geometry.
        flat: whether the accumulator has one axis for all pixels, so that a tile may reach into
            the next row; for pointwise windows only.
        rounded: extent of the accumulator's last spatial axis, at least the output's, or as many
            as `flat_pixels`. None: just that.
        output: spatial shape of the result.
        channels: O of the result; the packed weights may hold more.
        groups: each reads its own I/groups input channels.
        along_row: whether groups run along rows: the window's last axis counts single values, and
            the weight is (O/lanes, *kernel[:-1], kernel[-1]/group, lanes, group).
        staged_dtype: as which the data is multiplied.
        dtype: of the accumulator and result.
    """
    rank = len(window.kernel)
    batch = tuple(data.shape[: len(data.shape) - 1 - rank])
    sizes = [int(size) for size in weight.shape]
    if len(sizes) == rank + 3 and not along_row:
        sizes.append(1)
    inner, lanes, group = sizes[-3:]
    depth = inner * group
    accumulated = (*output[:-1], output[-1] if flat or rounded is None else rounded)
    if along_row:
        staged = stage_rows(data, window, accumulated, staged_dtype)
    else:
        staged = stage(data, window, accumulated, depth * groups, staged_dtype)
    packed = int(weight.shape[0]) * lanes
    taps = _taps(window)[: -1 if along_row else None]
    depth_axes = [te.reduce_axis((0, inner), name="i")]
    depth_axes += [te.reduce_axis((0, group), name="of_group")] if group > 1 else []
    lead, joined = _flat_split((*batch, *accumulated)) if flat else (len(batch) + rank, ())
    count = math.prod(joined)
    pixels = rounded if flat and rounded else count

    def element(*index: tirx.Var) -> tirx.Expr:
        within, channel = index[lead:-1], index[-1]
        if pixels > count:  # the last tile reads the last pixel again
            within = (te.min(within[0], count - 1),)
        at = (*index[:lead], *_unravel(within, joined))
        i = depth_axes[0] * group + depth_axes[1] if group > 1 else depth_axes[0]
        i = i if groups == 1 else channel // (packed // groups) * depth + i
        batch_at, pixel = at[: len(batch)], at[len(batch) :]
        if along_row:
            x = staged(*batch_at, *window.at(pixel, [*taps, i]))
        else:
            x = staged(*batch_at, *window.at(pixel, taps), i)
        w = weight(channel // lanes, *taps, depth_axes[0], channel % lanes, *depth_axes[1:])
        return te.sum(x.astype(dtype) * w.astype(dtype), axis=[*taps, *depth_axes])

    def cut(*index: tirx.Var) -> tirx.Expr:
        return total(*index[:lead], *_ravel(index[lead:-1], joined), index[-1])

    shape = (*batch, *accumulated)[:lead] + ((pixels,) if joined else ())
    total = te.compute((*shape, packed), element, name="contract")
    if not joined and packed == channels and all(map(_same, accumulated, output)):
        return total
    return te.compute((*batch, *output, channels), cut, name="cut")


def per_channel(
    data: te.Tensor,
    weight: te.Tensor,
    *,
    window: Window,
    rounded: int,
    output: Sequence[Dim],
    dtype: str,
) -> te.Tensor:
    """A depthwise convolution: weight (*kernel, C), or (*kernel, C * multiplier).

    `rounded` is the extent of the last spatial axis of the accumulator, at least the output's.
    """
    accumulated = (*output[:-1], rounded)
    channels, batches = weight.shape[-1], len(data.shape) - 1 - len(window.kernel)
    multiplier = int(channels) // int(data.shape[-1])
    staged = stage(data, window, accumulated, data.shape[-1], str(data.dtype))
    taps = _taps(window)

    def element(*index: tirx.Var) -> tirx.Expr:
        batch, pixel, channel = index[:batches], index[batches:-1], index[-1]
        source = channel if multiplier == 1 else channel // multiplier
        x = staged(*batch, *window.at(pixel, taps), source).astype(dtype)
        return te.sum(x * weight(*taps, channel).astype(dtype), axis=taps)

    shape = (*data.shape[:batches], *accumulated, channels)
    total = te.compute(shape, element, name="per_channel")
    if all(map(_same, accumulated, output)):
        return total
    shape = (*data.shape[:batches], *output, channels)
    return te.compute(shape, lambda *index: total(*index), name="cut")


def per_channel_taps(
    data: te.Tensor,
    weight: te.Tensor,
    *,
    window: Window,
    taps: int,
    rounded: int,
    output: Sequence[Dim],
    staged_dtype: str,
    dtype: str,
) -> te.Tensor:
    """A depthwise convolution that sums `taps` rows of its kernel at once.

    Args:
        data: (*batch, *spatial, C).
        weight: (*kernel, C/lanes, lanes, group), with `taps` times fewer rows.
        window: geometry; its last axis but one is that of rows, of which the kernel has a multiple
            of `taps`.
        taps: at most the group; the rest of it is not read.
        rounded: extent of the last spatial axis of the accumulator, at least the output's.
        output: spatial shape of the result.
        staged_dtype: as which the data is multiplied.
        dtype: of the accumulator and result.
    """
    accumulated, batches = (*output[:-1], rounded), len(data.shape) - 1 - len(window.kernel)
    channels, lanes = data.shape[-1], int(weight.shape[-2])
    staged = stage(data, window, accumulated, channels, staged_dtype)
    steps = _taps(replace(window, kernel=tuple(int(k) for k in weight.shape[:-3])))
    tap = te.reduce_axis((0, taps), name="tap")
    at = [*steps[:-2], steps[-2] * taps + tap, steps[-1]]

    def element(*index: tirx.Var) -> tirx.Expr:
        batch, pixel, channel = index[:batches], index[batches:-1], index[-1]
        x = staged(*batch, *window.at(pixel, at), channel).astype(dtype)
        w = weight(*steps, channel // lanes, channel % lanes, tap).astype(dtype)
        return te.sum(x * w, axis=[*steps, tap])

    shape = (*data.shape[:batches], *accumulated, channels)
    total = te.compute(shape, element, name="per_channel")
    if all(map(_same, accumulated, output)):
        return total
    shape = (*data.shape[:batches], *output, channels)
    return te.compute(shape, lambda *index: total(*index), name="cut")


def grouped(
    data: te.Tensor,
    weight: te.Tensor,
    *,
    window: Window,
    output: Sequence[Dim],
    groups: int,
    dtype: str,
) -> te.Tensor:
    """A grouped convolution whose groups are no whole vectors: weight (*kernel, I/groups, O)."""
    depth, channels = int(weight.shape[-2]), int(weight.shape[-1])
    batches = len(data.shape) - 1 - len(window.kernel)
    staged = stage(data, window, output, data.shape[-1], str(data.dtype))
    taps = _taps(window)
    i = te.reduce_axis((0, depth), name="i")

    def element(*index: tirx.Var) -> tirx.Expr:
        batch, pixel, channel = index[:batches], index[batches:-1], index[-1]
        source = channel // (channels // groups) * depth + i
        x = staged(*batch, *window.at(pixel, taps), source).astype(dtype)
        return te.sum(x * weight(*taps, i, channel).astype(dtype), axis=[*taps, i])

    return te.compute((*data.shape[:batches], *output, channels), element, name="grouped")


def _taps(window: Window) -> list[Any]:
    return [
        te.reduce_axis((0, kernel), name=f"k{axis}") for axis, kernel in enumerate(window.kernel)
    ]


def flat_pixels(shape: Sequence[Dim]) -> int:
    """Pixels of the axes of (*batch, *output) that a flat accumulator joins: the static last ones.

    >>> flat_pixels((2, 7, 7))
    98
    """
    return math.prod(_flat_split(shape)[1])


def _flat_split(shape: Sequence[Dim]) -> tuple[int, tuple[int, ...]]:
    """Number of leading axes to keep, and the static axes after them to make one."""
    lead = len(shape)
    while lead and isinstance(shape[lead - 1], int | tirx.IntImm):
        lead -= 1
    return lead, tuple(int(dim) for dim in shape[lead:])


def _unravel(index: Sequence[Dim], shape: Sequence[int]) -> tuple[Dim, ...]:
    """Index into `shape` from at most one flat index."""
    if not shape:
        return tuple(index)
    (rest,), parts = index, []
    for dim in reversed(shape[1:]):
        parts.append(rest % dim)
        rest = rest // dim
    return (rest, *reversed(parts))


def _ravel(index: Sequence[Dim], shape: Sequence[int]) -> tuple[Dim, ...]:
    if not shape:
        return tuple(index)
    flat = index[0]
    for at, dim in zip(index[1:], shape[1:], strict=True):
        flat = flat * dim + at
    return (flat,)


def _same(a: Dim, b: Dim) -> bool:
    if isinstance(a, int | tirx.IntImm) and isinstance(b, int | tirx.IntImm):
        return int(a) == int(b)
    return bool(tvm_ffi.structural_equal(a, b))


def _fits(need: Dim, have: Dim) -> bool:
    """Whether `need <= have` is known."""
    if isinstance(need, int | tirx.IntImm) and isinstance(have, int | tirx.IntImm):
        return int(need) <= int(have)
    return _same(need, have)
