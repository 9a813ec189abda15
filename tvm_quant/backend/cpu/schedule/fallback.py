"""Fallback: each block on its own, vectorized along its last axis, parallel over the first ones.

Element-wise chains, pools, reductions, softmax, normalizations, transposes, gathers.
"""

from __future__ import annotations

from tvm import s_tir, tirx
from tvm.s_tir.schedule import SBlockRV, ScheduleError

from tvm_quant.backend.cpu.isa import Isa
from tvm_quant.backend.cpu.schedule.blocks import (
    element_bits,
    fuse_outer,
    inline_injective,
    is_injective,
    iter_kinds,
    iteration_count,
    log_unfinished,
    loop_extent,
    parallel_if_worth,
    vector_factor,
)
from tvm_quant.backend.cpu.schedule.transpose import schedule_transpose


def schedule_fallback(func: tirx.PrimFunc, isa: Isa) -> s_tir.Schedule | None:
    """Schedules any function made of spatial and reduction blocks."""
    try:
        sch = s_tir.Schedule(func)
        blocks = inline_injective(sch, keep=[])
        for block in blocks:
            schedule_block(sch, block, isa)
    except ScheduleError as error:
        log_unfinished(__name__, error)
        return None
    return sch


def schedule_block(sch: s_tir.Schedule, block: SBlockRV, isa: Isa) -> None:
    """Schedules one block at the root."""
    kinds = iter_kinds(sch, block)
    if not kinds or "O" in kinds or len(sch.get_loops(block)) != len(kinds):
        return
    if is_injective(sch, block):
        if not schedule_transpose(sch, block, isa):
            schedule_injective(sch, block, isa)
    elif kinds == "S" * kinds.count("S") + "R" * kinds.count("R") and "S" in kinds:
        schedule_reduction(sch, block, isa)


def schedule_injective(sch: s_tir.Schedule, block: SBlockRV, isa: Isa) -> None:
    """Vectorizes the last loop where whole vectors fit, otherwise leaves that to LLVM."""
    loops = list(sch.get_loops(block))
    elements, bits = iteration_count(sch, block), element_bits(sch, block)
    lanes, last = isa.vector_bits // bits, loop_extent(sch, loops[-1])
    if is_elementwise(sch, block) and elements is not None:
        loops = [sch.fuse(*loops)]
    # What counts are the bytes that are moved.
    work = None if elements is None else elements * bits // 16
    factor = vector_factor(loop_extent(sch, loops[-1]), lanes)
    if last is not None and last % factor:
        # Indices of a vector that crosses rows are divisions of each lane; those of a single
        # element simplify, and LLVM vectorizes the loop.
        factor = 1
    if factor > 1:
        *outer, last = loops
        rest, vector = sch.split(last, [None, factor])
        sch.vectorize(vector)
        loops = [*outer, rest]
        if len(loops) == 1:
            parallel_if_worth(sch, rest, work)
            return
    if len(loops) > 1:
        parallel_if_worth(sch, fuse_outer(sch, loops[:-1]), work)


def schedule_reduction(sch: s_tir.Schedule, block: SBlockRV, isa: Isa) -> None:
    """Vectorizes along the last spatial axis, keeping the sums in registers."""
    kinds = iter_kinds(sch, block)
    work = iteration_count(sch, block)
    loops = list(sch.get_loops(block))
    spatial, reduced = loops[: kinds.count("S")], loops[kinds.count("S") :]
    lanes = isa.vector_bits // element_bits(sch, block)
    factor = vector_factor(loop_extent(sch, spatial[-1]), 2 * lanes)
    if factor > 1:
        rest, vector = sch.split(spatial[-1], [None, factor])
        sch.reorder(*spatial[:-1], rest, *reduced, vector)
        spatial = [*spatial[:-1], rest]
    outer = sch.fuse(*spatial) if len(spatial) > 1 else spatial[0]
    parallel_if_worth(sch, outer, work)
    if factor > 1:
        sch.vectorize(vector)
    init = sch.decompose_reduction(block, reduced[0])
    if factor > 1:
        sch.vectorize(sch.get_loops(init)[-1])


def is_elementwise(sch: s_tir.Schedule, block: SBlockRV) -> bool:
    """Whether all operands and the result of a block have the same index."""
    stmt = sch.get(block)
    variables = [it.var for it in stmt.iter_vars]
    for region in [*stmt.reads, *stmt.writes]:
        if len(region.region) != len(variables):
            return False
        for axis, var in zip(region.region, variables, strict=True):
            if not (axis.min.same_as(var) and isinstance(axis.extent, tirx.IntImm)):
                return False
    return True
