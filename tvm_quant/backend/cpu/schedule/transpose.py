"""Transposes: blocks of whole vectors, so that neither side is read or written one by one.

A full block is unrolled; LLVM then turns its loads and stores into shuffles between vectors.
"""

from __future__ import annotations

from tvm import s_tir
from tvm.s_tir.schedule import LoopRV, SBlockRV

from tvm_quant.backend.cpu.isa import Isa
from tvm_quant.backend.cpu.schedule.blocks import (
    element_bits,
    iter_extents,
    iteration_count,
    loop_extent,
    parallel_if_worth,
    vector_factor,
)

MAX_UNROLLED = 8  # vectors of a block


def schedule_transpose(sch: s_tir.Schedule, block: SBlockRV, isa: Isa) -> bool:
    """Schedules an element-wise block that reads an operand along another axis than it writes.

    Returns:
        Whether it is one.
    """
    order = _read_order(sch, block)
    if order is None:
        return False
    lanes = isa.vector_bits // element_bits(sch, block)
    extents = iter_extents(sch, block)
    work = iteration_count(sch, block)
    # Axes that are neighbours on both sides are one: (N, H, W, C) to (N, C, H W).
    loops: list[LoopRV] = []
    reads: list[int] = []
    for axis, loop in enumerate(sch.get_loops(block)):
        joins = axis > 0 and order[axis] == order[axis - 1] + 1 and extents[axis] is not None
        if joins and extents[axis - 1] is not None:
            loops[-1] = sch.fuse(loops[-1], loop)
            reads[-1] = order[axis]
        else:
            loops.append(loop)
            reads.append(order[axis])
    source, last = reads.index(max(reads)), len(loops) - 1
    if source == last:
        return False
    factors = [
        vector_factor(loop_extent(sch, loops[axis]), min(lanes, limit))
        for axis, limit in ((source, MAX_UNROLLED), (last, 2 * MAX_UNROLLED))
    ]
    source_outer, source_inner = sch.split(loops[source], [None, factors[0]])
    last_outer, last_inner = sch.split(loops[last], [None, factors[1]])
    outer = [*loops[:source], source_outer, *loops[source + 1 : last], last_outer]
    # Few channels make no vector: then the reads are vectors, and the writes single elements.
    unrolled, vector = source_inner, last_inner
    if factors[1] == 1:
        unrolled, vector = last_inner, source_inner
    sch.reorder(*outer, unrolled, vector)
    parallel_if_worth(sch, sch.fuse(*outer[:-1]), work)
    if max(factors) > 1:
        sch.vectorize(vector)
    if min(factors) > 1:
        sch.unroll(unrolled)
    return True


def _read_order(sch: s_tir.Schedule, block: SBlockRV) -> list[int] | None:
    """Position, in the index of a transposed operand, of each iterator; None if there is none."""
    stmt = sch.get(block)
    variables = [it.var for it in stmt.iter_vars]
    if len(sch.get_loops(block)) != len(variables):
        return None
    for region in stmt.reads:
        index = [axis.min for axis in region.region]
        order = [
            next((at for at, part in enumerate(index) if part.same_as(var)), -1)
            for var in variables
        ]
        if sorted(order) == list(range(len(index))) and order[-1] != len(index) - 1:
            return order
    return None
