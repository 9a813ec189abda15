"""Winograd convolutions: see `tvm_quant.backend.cpu.winograd` for what the blocks compute.

Loops    parallel(batch, strip of rows of windows)
           - copy of the strip's padded input; its factors, those of a window at a time
           - channel tile
             - point - window tile - input channels
               - windows (unrolled) - vectors (unrolled) - lanes (vectorized)
             - rows, columns of windows - vector
               - outputs of each column of the window's sums, then of each row (unrolled)
               - what follows, on these

The factors of a strip and the products of a channel tile stay in the second-level cache.
"""

from __future__ import annotations

from tvm import s_tir, tirx
from tvm.s_tir.schedule import SBlockRV, ScheduleError

from tvm_quant.backend.cpu.isa import Isa
from tvm_quant.backend.cpu.schedule.blocks import (
    inline_injective,
    iter_extents,
    iter_kinds,
    iteration_count,
    log_unfinished,
    loop_extent,
    parallel_if_worth,
    root_blocks,
    vector_factor,
)
from tvm_quant.backend.cpu.schedule.contraction import (
    Factors,
    find_factors,
    tile_loops,
    whole_lanes,
)
from tvm_quant.backend.cpu.schedule.window import vectorize_copy
from tvm_quant.backend.cpu.tile import Tile, choose_tile
from tvm_quant.backend.cpu.winograd import (
    COLUMNS,
    OUTPUT,
    PRODUCTS,
    STRIP,
    TRANSFORMED,
    WINDOWS,
)

MIN_TASKS = 4  # with fewer strips, threads share out the channels of each


def schedule_winograd(func: tirx.PrimFunc, isa: Isa) -> s_tir.Schedule | None:
    """Schedules a function with one Winograd convolution."""
    try:
        sch = s_tir.Schedule(func)
        names = {sch.get(block).name_hint for block in root_blocks(sch)}
        if not {TRANSFORMED, PRODUCTS, COLUMNS, WINDOWS, OUTPUT} <= names:
            return None
        factors = find_factors(sch, sch.get_sblock(PRODUCTS))
        if factors is None:
            return None
        _schedule(sch, factors, isa)
    except ScheduleError as error:
        log_unfinished(__name__, error)
        return None
    return sch


def _schedule(sch: s_tir.Schedule, factors: Factors, isa: Isa) -> None:
    total, transformed = sch.get_sblock(PRODUCTS), sch.get_sblock(TRANSFORMED)
    copies = list(sch.get_producers(transformed))
    columns, windows = sch.get_sblock(COLUMNS), sch.get_sblock(WINDOWS)
    inline_injective(sch, keep=[*copies, columns, windows])
    epilogue = root_blocks(sch)[-1]
    *lead, y, x, channel = sch.get_loops(epilogue)
    rows, wide, size = (int(extent) for extent in sch.get(total).annotations[STRIP])
    packed = iter_extents(sch, total)[iter_kinds(sch, total).count("S") - 1] or 1
    tile, _ = choose_tile(isa, rows=rows * wide, vectors=packed // factors.lanes, padding=None)
    strip, row, down = sch.split(y, [None, rows, size])
    column, right = sch.split(x, [None, size])
    lanes = whole_lanes(loop_extent(sch, channel), factors.lanes)
    vectors = tile.vectors * factors.lanes // lanes
    channels, vector, lane = sch.split(channel, [None, vectors, lanes])
    sch.reorder(*lead, strip, channels, row, column, vector, down, right, lane)
    task = sch.fuse(*lead, strip)
    few = (loop_extent(sch, task) or MIN_TASKS) < MIN_TASKS
    parallel = channels if few else task
    # The factors take as long as the products, each of which does the work of four.
    parallel_if_worth(sch, parallel, iteration_count(sch, total), lanes=isa.lanes // 4)
    sch.compute_at(windows, vector, preserve_unit_loops=True)
    sch.compute_at(columns, vector, preserve_unit_loops=True)
    _result_loops(sch, columns, windows)
    sch.compute_at(total, channels, preserve_unit_loops=True)
    sch.compute_at(transformed, task, preserve_unit_loops=True)
    _transform_loops(sch, transformed, isa)
    for copy in copies:
        sch.compute_at(copy, task)
        vectorize_copy(sch, copy, isa)
    _product_loops(sch, total, factors, tile, isa)
    sch.unroll(right)
    if loop_extent(sch, lane) == lanes:
        sch.vectorize(lane)


def _transform_loops(sch: s_tir.Schedule, block: SBlockRV, isa: Isa) -> None:
    """All points of a window at once, so that they share what they are made of."""
    *_, point, window, channel = sch.get_loops(block)
    lanes = isa.vector_bits // int(sch.get(block).writes[0].source.dtype.bits)
    outer, lane = sch.split(channel, [None, vector_factor(loop_extent(sch, channel), lanes)])
    sch.reorder(window, outer, point, lane)
    sch.unroll(point)
    sch.vectorize(lane)


def _result_loops(sch: s_tir.Schedule, columns: SBlockRV, windows: SBlockRV) -> None:
    """All outputs of a column, then of a row, at once; both stay on the stack."""
    *_, y, _, column, lane = sch.get_loops(columns)
    sch.reorder(column, y, lane)
    sch.unroll(y)
    sch.vectorize(lane)
    sch.set_scope(columns, 0, "local")
    *_, y, x, lane = sch.get_loops(windows)
    sch.unroll(y)
    sch.unroll(x)
    sch.vectorize(lane)
    sch.set_scope(windows, 0, "local")


def _product_loops(
    sch: s_tir.Schedule, total: SBlockRV, factors: Factors, tile: Tile, isa: Isa
) -> None:
    kinds = iter_kinds(sch, total)
    loops = list(sch.get_loops(total))[-len(kinds) :]
    *lead, windows, channel = loops[: kinds.count("S")]
    outer, row = sch.split(windows, [None, tile.rows])
    spatial = [*lead, outer, row, channel]
    tile_loops(sch, total, factors, (spatial, loops[kinds.count("S") :]), tile, isa)
