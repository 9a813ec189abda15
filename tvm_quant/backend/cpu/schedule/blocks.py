"""Reading and preparing the blocks of a PrimFunc; used by all rules."""

from __future__ import annotations

import logging
import math
from typing import Any

from tvm import s_tir, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV, ScheduleError

WORTH_A_THREAD = 1 << 17  # operations below which the thread pool, 1 to 2 us, saves little


def log_unfinished(rule: str, error: ScheduleError) -> None:
    """Logs why a rule that matched could not finish; the next rule takes the function."""
    logging.getLogger(rule).debug("left to the next rule: %s", error)


def root_blocks(sch: s_tir.Schedule) -> list[SBlockRV]:
    """Blocks of a function in order."""
    return list(sch.get_child_blocks(sch.get_sblock("root")))


def iter_kinds(sch: s_tir.Schedule, block: SBlockRV) -> str:
    """Kinds of the iterators of a block: "S" spatial, "R" reduction, "O" other."""
    kinds = {tirx.IterVar.DataPar: "S", tirx.IterVar.CommReduce: "R"}
    return "".join(kinds.get(it.iter_type, "O") for it in sch.get(block).iter_vars)


def is_injective(sch: s_tir.Schedule, block: SBlockRV) -> bool:
    """Whether each element of the result is computed once, from no sum."""
    return set(iter_kinds(sch, block)) <= {"S"}


def iter_extents(sch: s_tir.Schedule, block: SBlockRV) -> list[int | None]:
    """Extents of the iterators of a block; None where symbolic."""
    return [static(it.dom.extent) for it in sch.get(block).iter_vars]


def static(extent: Any) -> int | None:
    """An extent as int, None if symbolic."""
    return int(extent) if isinstance(extent, int | tirx.IntImm) else None


def loop_extent(sch: s_tir.Schedule, loop: LoopRV) -> int | None:
    """Extent of a loop; None if symbolic."""
    return static(sch.get(loop).extent)


def iteration_count(sch: s_tir.Schedule, block: SBlockRV) -> int | None:
    """How often a block runs; None if symbolic."""
    known = [extent for extent in iter_extents(sch, block) if extent is not None]
    return math.prod(known) if len(known) == len(sch.get(block).iter_vars) else None


def element_bits(sch: s_tir.Schedule, block: SBlockRV) -> int:
    """Bits of the widest element a block reads or writes."""
    stmt = sch.get(block)
    return max(int(region.source.dtype.bits) for region in [*stmt.reads, *stmt.writes])


def inline_injective(sch: s_tir.Schedule, *, keep: list[SBlockRV]) -> list[SBlockRV]:
    """Inlines element-wise blocks that only element-wise ones read. Returns the blocks left.

    What several read (x in x * sigmoid(x)) stands in each; once these are one, LLVM shares it.
    """
    kept = [sch.get(block).name_hint for block in keep]
    for block in root_blocks(sch):
        if sch.get(block).name_hint in kept or not is_injective(sch, block):
            continue
        readers = list(sch.get_consumers(block))
        if not readers or not all(is_injective(sch, reader) for reader in readers):
            continue
        try:
            sch.compute_inline(block)
        except ScheduleError:
            continue
    return root_blocks(sch)


def divisor(number: int, limit: int) -> int:
    """Largest divisor of `number` up to `limit`."""
    return max(
        factor for factor in range(1, max(1, min(number, limit)) + 1) if number % factor == 0
    )


def vector_factor(extent: int | None, lanes: int) -> int:
    """Largest power of two up to `lanes` that divides `extent`; 1 if symbolic."""
    if extent is None:
        return 1
    while lanes > 1 and extent % lanes:
        lanes //= 2
    return lanes


def fuse_outer(sch: s_tir.Schedule, loops: list[LoopRV]) -> LoopRV:
    """One loop of the outer `loops`, up to the last symbolic one.

    TVM cannot take apart again what joins a symbolic extent with static ones after it.
    """
    symbolic = [at for at, loop in enumerate(loops) if loop_extent(sch, loop) is None]
    last = symbolic[-1] if symbolic and symbolic[-1] > 0 else len(loops) - 1
    return sch.fuse(*loops[: last + 1])


def parallel_if_worth(
    sch: s_tir.Schedule, loop: LoopRV, operations: int | None, *, lanes: int = 1
) -> None:
    """Runs a loop on the thread pool; symbolic work (None) counts as enough.

    Args:
        sch: the schedule.
        loop: outermost.
        operations: how often the innermost statement runs.
        lanes: how many of them run at once from registers.
    """
    if operations is None or operations >= WORTH_A_THREAD * lanes:
        sch.parallel(loop)
