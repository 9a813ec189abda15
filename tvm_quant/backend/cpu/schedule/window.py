"""Depthwise convolutions: one filter per channel, vectorized over channels.

Loops    parallel(batch, strip of rows) - copy of the strip's padded input
           - rows of the strip - pixel tile - channel vector
             - kernel - pixels (unrolled) - lanes (vectorized)
             - what follows the sum, on the tile

Where the target has an instruction for four products of bytes, it takes up to four rows of the
kernel at once: one vector of each row of the input, interleaved.

Neighbouring pixels of a tile share inputs, which LLVM keeps in registers once the last kernel axis
is unrolled as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tvm import s_tir, tirx
from tvm.s_tir.schedule import SBlockRV, ScheduleError

from tvm_quant.backend.cpu.intrinsics import tap_intrinsic
from tvm_quant.backend.cpu.isa import Isa
from tvm_quant.backend.cpu.schedule.blocks import (
    divisor,
    element_bits,
    inline_injective,
    is_injective,
    iter_extents,
    iter_kinds,
    iteration_count,
    log_unfinished,
    loop_extent,
    parallel_if_worth,
    root_blocks,
    vector_factor,
)
from tvm_quant.backend.cpu.tile import MAX_ROWS

MAX_UNROLLED = 96  # multiply-adds of an unrolled tile; more only fill the instruction cache


def schedule_window(func: tirx.PrimFunc, isa: Isa) -> s_tir.Schedule | None:
    """Schedules a function with one depthwise convolution."""
    try:
        sch = s_tir.Schedule(func)
        found = _find(sch)
        if found is None or (found.lanes and not _takes_taps(isa, found)):
            return None
        total = found.total
        if not list(sch.get_consumers(total)):
            sch.cache_write(total, 0, "global")
        inline_injective(sch, keep=[])
        readers = list(sch.get_consumers(total))
        if len(readers) != 1 or not reads_in_place(sch, total, readers[0]):
            return None
        _schedule(sch, found, readers[0], isa)
    except ScheduleError as error:
        log_unfinished(__name__, error)
        return None
    return sch


@dataclass(frozen=True, kw_only=True)
class _Depthwise:
    """What the rule found in a function."""

    total: SBlockRV
    taps: int  # of the last reduction, which one instruction computes; 1 if there is none
    lanes: int | None  # channels of a packed weight vector
    data: str  # type of the factor that is not the filter


def _find(sch: s_tir.Schedule) -> _Depthwise | None:
    sums = [block for block in root_blocks(sch) if not is_injective(sch, block)]
    if len(sums) != 1:
        return None
    kinds = iter_kinds(sch, sums[0])
    spatial, reduced = kinds.count("S"), kinds.count("R")
    if kinds != "S" * spatial + "R" * reduced or spatial < 3:
        return None
    variables = [it.var for it in sch.get(sums[0]).iter_vars]
    taps, channel = variables[spatial:], variables[spatial - 1]
    data, lanes, plain = None, None, False
    for region in sch.get(sums[0]).reads:
        index = [axis.min for axis in region.region]
        plain = plain or _same_vars(index, [*taps, channel])
        if _is_packed(index, taps, channel):
            lanes = int(index[-2].b)
        elif len(index) == spatial and index[-1].same_as(channel):
            data = str(region.source.dtype)
    if data is None or not (plain or lanes):
        return None
    rows = iter_extents(sch, sums[0])[-1] or 1
    return _Depthwise(total=sums[0], taps=rows if lanes else 1, lanes=lanes, data=data)


def _takes_taps(isa: Isa, found: _Depthwise) -> bool:
    """Whether the filter is packed for an instruction of `isa`."""
    return found.lanes == isa.lanes and isa.tap_dot(found.data) is not None


def _is_packed(index: list[tirx.Expr], taps: list[tirx.Var], channel: tirx.Var) -> bool:
    """Whether a filter is read at [*taps, channel // lanes, channel % lanes, last tap]."""
    if len(index) != len(taps) + 2:
        return False
    *outer, block, lane, last = index
    return (
        _same_vars([*outer, last], taps)
        and isinstance(block, tirx.FloorDiv)
        and isinstance(lane, tirx.FloorMod)
        and block.a.same_as(channel)
        and lane.a.same_as(channel)
    )


def _same_vars(index: list[tirx.Expr], variables: list[tirx.Var]) -> bool:
    return len(index) == len(variables) and all(
        part.same_as(var) for part, var in zip(index, variables, strict=True)
    )


def reads_in_place(sch: s_tir.Schedule, total: SBlockRV, reader: SBlockRV) -> bool:
    """Whether `reader` is the last block and reads the sum at its own index."""
    if list(sch.get_consumers(reader)) or not is_injective(sch, reader):
        return False
    variables = [it.var for it in sch.get(reader).iter_vars]
    buffer = sch.get(total).writes[0].source
    regions = [region for region in sch.get(reader).reads if region.source.same_as(buffer)]
    return len(sch.get_loops(reader)) == len(variables) and all(
        _same_vars([axis.min for axis in region.region], variables) for region in regions
    )


def _schedule(sch: s_tir.Schedule, found: _Depthwise, epilogue: SBlockRV, isa: Isa) -> None:
    total = found.total
    extents, kinds = iter_extents(sch, total), iter_kinds(sch, total)
    spatial = kinds.count("S")
    kernel = [extent or 1 for extent in extents[spatial:]]
    if found.lanes:
        kernel.pop()
    lanes = found.lanes or vector_factor(extents[spatial - 1], isa.lanes)
    rows = _tile_rows(extents[spatial - 2], kernel)
    *lead, row, channel = sch.get_loops(epilogue)
    row_outer, row_inner = sch.split(row, [None, rows])
    channel_outer, lane = sch.split(channel, [None, lanes])
    strips, within = sch.split(
        lead[-1], [None, _strip(sch, total, loop_extent(sch, lead[-1]), isa)]
    )
    sch.reorder(*lead[:-1], strips, within, row_outer, channel_outer, row_inner, lane)
    task = sch.fuse(*lead[:-1], strips)
    # An instruction multiplies what belongs to a lane, not four of that.
    parallel_if_worth(sch, task, iteration_count(sch, total), lanes=isa.lanes // 4)
    sch.compute_at(total, channel_outer, preserve_unit_loops=True)
    for block in sch.get_producers(total):
        sch.compute_at(block, task)
        vectorize_copy(sch, block, isa)
    _tile_loops(sch, found, kernel, rows, isa)
    sch.unroll(row_inner)
    if lanes > 1:
        sch.vectorize(lane)


def _tile_rows(rows: int | None, kernel: list[int]) -> int:
    if rows is None:
        return 1
    return divisor(rows, max(1, min(MAX_ROWS, MAX_UNROLLED // kernel[-1])))


def _strip(sch: s_tir.Schedule, total: SBlockRV, rows: int | None, isa: Isa) -> int:
    """Output rows whose inputs fit the cache."""
    if rows is None:
        return 1
    data = next(
        region.source
        for region in sch.get(total).reads
        if len(region.region) == iter_kinds(sch, total).count("S")
    )
    row = [int(dim) for dim in data.shape[2:] if isinstance(dim, tirx.IntImm)]
    bytes_per_row = math.prod(row) * int(data.dtype.bits) // 8
    return divisor(rows, min(max(1, isa.cache_bytes // bytes_per_row), max(1, rows // 4)))


def _tile_loops(
    sch: s_tir.Schedule, found: _Depthwise, kernel: list[int], rows: int, isa: Isa
) -> None:
    total, dot = found.total, isa.tap_dot(found.data)
    kinds = iter_kinds(sch, total)
    loops = list(sch.get_loops(total))[-len(kinds) :]
    spatial, taps = loops[: kinds.count("S")], loops[kinds.count("S") :]
    *rest, row, lane = spatial
    last = [taps.pop()] if found.lanes else []
    sch.reorder(*rest, *taps, row, lane, *last)
    unrolled = rows
    for tap, extent in zip(reversed(taps), reversed(kernel), strict=True):
        unrolled *= extent
        if unrolled > MAX_UNROLLED:
            break
        sch.unroll(tap)
    sch.unroll(row)
    if not last and (loop_extent(sch, lane) or 1) > 1:
        sch.vectorize(lane)
    init = sch.decompose_reduction(total, taps[0])
    *_, row, init_lane = sch.get_loops(init)
    sch.unroll(row)
    if (loop_extent(sch, init_lane) or 1) > 1:
        sch.vectorize(init_lane)
    if dot is not None and found.lanes:
        sch.tensorize(lane, tap_intrinsic(found.lanes, dot, found.taps))


def vectorize_copy(sch: s_tir.Schedule, block: SBlockRV, isa: Isa) -> None:
    """Vectorizes a staged copy along its last axis where whole vectors fit."""
    last = sch.get_loops(block)[-1]
    factor = vector_factor(loop_extent(sch, last), isa.vector_bits // element_bits(sch, block))
    if factor > 1:
        sch.vectorize(sch.split(last, [None, factor])[1])
