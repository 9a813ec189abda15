"""Dense contractions: convolutions and matrix products with packed weights.

Loops    parallel(batch, row chunk, channel tile) - rows of the chunk - pixel tile
           - kernel, input channels
             - pixels (unrolled) - vectors (unrolled) - lanes (vectorized)
           - what follows the sum, on the tile

The accumulator of a tile stays in registers; see `tile.py` for its size. The weights of a channel
tile are read from the far caches once for a whole chunk of rows, the rows of a chunk once if they
fit the near ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tvm import s_tir, tirx
from tvm.ir import Call, Op
from tvm.s_tir.schedule import LoopRV, SBlockRV, ScheduleError
from tvm.tirx import BufferRegion

from tvm_quant.backend.cpu.intrinsics import dot_intrinsic
from tvm_quant.backend.cpu.isa import Isa
from tvm_quant.backend.cpu.schedule.blocks import (
    fuse_outer,
    inline_injective,
    is_injective,
    iter_extents,
    iter_kinds,
    iteration_count,
    log_unfinished,
    loop_extent,
    parallel_if_worth,
    root_blocks,
    static,
    vector_factor,
)
from tvm_quant.backend.cpu.schedule.fallback import schedule_block
from tvm_quant.backend.cpu.tile import Tile, rank_tiles


@dataclass(frozen=True, kw_only=True)
class Factors:
    """What a packed contraction multiplies.

    Attributes:
        lanes: output channels of a vector of weights.
        group: input channels multiplied at once.
        data: the factor that is not the weight, as the sum reads it.
        weight: the packed weight.
    """

    lanes: int
    group: int
    data: BufferRegion
    weight: tirx.Buffer


@dataclass(frozen=True, kw_only=True)
class _Contraction:
    """What the rule found in a function."""

    total: SBlockRV
    epilogue: SBlockRV
    factors: Factors
    vectors: int  # vectors of output channels that read the same inputs
    pixel_axes: int  # last spatial axes of the result that are one axis of the accumulator


def schedule_contraction(
    func: tirx.PrimFunc, isa: Isa, tile: Tile | None = None
) -> s_tir.Schedule | None:
    """Schedules a function with one packed contraction.

    Args:
        func: the function.
        isa: of the target.
        tile: one of `contraction_tiles`; without, the first.
    """
    try:
        sch = s_tir.Schedule(func)
        found = _find(sch)
        if found is None:
            return None
        _schedule(sch, found, isa, tile or _tiles(sch, found, isa)[0])
    except ScheduleError as error:
        log_unfinished(__name__, error)
        return None
    return sch


def contraction_tiles(func: tirx.PrimFunc, isa: Isa) -> list[Tile]:
    """Tiles that fit a function with one packed contraction, the best first; none for others."""
    try:
        sch = s_tir.Schedule(func)
        found = _find(sch)
    except ScheduleError:
        return []
    return _tiles(sch, found, isa) if found else []


def _find(sch: s_tir.Schedule) -> _Contraction | None:
    sums = [block for block in root_blocks(sch) if not is_injective(sch, block)]
    if len(sums) != 1:
        return None
    factors = find_factors(sch, sums[0])
    if factors is None:
        return None
    spread = _spread(sch, sums[0])
    if not list(sch.get_consumers(sums[0])) or sums[0] in spread:
        sch.cache_write(sums[0], 0, "global")
    inline_injective(sch, keep=spread)
    readers = list(sch.get_consumers(sums[0]))
    if len(readers) != 1 or (list(sch.get_consumers(readers[0])) and not spread):
        return None
    axes = _pixel_axes(sch, sums[0], readers[0])
    if axes is None:
        return None
    channels = iter_extents(sch, sums[0])[iter_kinds(sch, sums[0]).count("S") - 1]
    assert channels is not None  # a packed weight has static extents
    return _Contraction(
        total=sums[0],
        epilogue=readers[0],
        factors=factors,
        vectors=_channels_per_group(sch, sums[0], factors.data, channels) // factors.lanes,
        pixel_axes=axes,
    )


def _spread(sch: s_tir.Schedule, total: SBlockRV) -> list[SBlockRV]:
    """The block whose results more elements read than there are, if there is one after the sum.

    A gate of one pixel multiplies all of an image: computed in their place, it would be again for
    each. The blocks behind are kernels of their own.
    """
    block = total
    while len(readers := list(sch.get_consumers(block))) == 1:
        if _known_count(sch, readers[0]) > _known_count(sch, block):
            return [block]
        block = readers[0]
    return []


def _known_count(sch: s_tir.Schedule, block: SBlockRV) -> int:
    """How many elements a block computes, for each of those along symbolic axes."""
    kinds, extents = iter_kinds(sch, block), iter_extents(sch, block)
    return math.prod(n or 1 for kind, n in zip(kinds, extents, strict=True) if kind == "S")


def find_factors(sch: s_tir.Schedule, block: SBlockRV) -> Factors | None:
    """The factors of a sum, if one is read at [o // lanes, ..., o % lanes(, i)]."""
    kinds = iter_kinds(sch, block)
    if "R" not in kinds or "O" in kinds or kinds != "S" * kinds.count("S") + "R" * kinds.count("R"):
        return None
    channel = sch.get(block).iter_vars[kinds.count("S") - 1].var
    factors = list(sch.get(block).reads)
    for region in factors:
        index, shape = _index(region), region.source.shape
        if not (isinstance(index[0], tirx.FloorDiv) and index[0].a.same_as(channel)):
            continue
        others = [other for other in factors if not other.same_as(region)]
        for position in (-1, -2):
            lane = index[position]
            if isinstance(lane, tirx.FloorMod) and lane.a.same_as(channel) and len(others) == 1:
                return Factors(
                    lanes=int(lane.b),
                    group=1 if position == -1 else int(shape[-1]),
                    data=others[0],
                    weight=region.source,
                )
    return None


def _index(region: BufferRegion) -> list[tirx.Expr]:
    return [axis.min for axis in region.region]


def _channels_per_group(
    sch: s_tir.Schedule, block: SBlockRV, data: BufferRegion, channels: int
) -> int:
    """Output channels that share inputs: the divisor of the channel in the data's index."""
    channel = sch.get(block).iter_vars[iter_kinds(sch, block).count("S") - 1].var
    return min([channels, *_divided(_index(data)[-1], channel)])


def _divided(expr: tirx.Expr, var: tirx.Var) -> list[int]:
    """Divisors of `var` in `expr`."""
    if isinstance(expr, tirx.FloorDiv) and expr.a.same_as(var):
        return [int(expr.b)]
    parts = [getattr(expr, name) for name in ("a", "b") if hasattr(expr, name)]
    return [size for part in parts for size in _divided(part, var)]


def _pixel_axes(sch: s_tir.Schedule, total: SBlockRV, epilogue: SBlockRV) -> int | None:
    """How many axes of the result make one of the accumulator; None if it is read elsewhere."""
    axes = len(sch.get(epilogue).iter_vars) - iter_kinds(sch, total).count("S") + 1
    if axes < 1 or len(sch.get_loops(epilogue)) != len(sch.get(epilogue).iter_vars):
        return None
    variables = [it.var for it in sch.get(epilogue).iter_vars]
    buffer = sch.get(total).writes[0].source
    kept = [*variables[: -1 - axes], variables[-1]]
    for region in sch.get(epilogue).reads:
        if not region.source.same_as(buffer):
            continue
        indices = [axis.min for axis in region.region]
        del indices[-2]
        if not all(index.same_as(var) for index, var in zip(indices, kept, strict=True)):
            return None
    return axes


def _schedule(sch: s_tir.Schedule, found: _Contraction, isa: Isa, tile: Tile) -> None:
    if found.pixel_axes > 1:
        _flatten_pixels(sch, found)
    *lead, rows, channel = sch.get_loops(found.epilogue)
    row_outer, row_inner = sch.split(rows, [None, tile.rows])
    lanes = whole_lanes(loop_extent(sch, channel), found.factors.lanes)
    vectors = tile.vectors * found.factors.lanes // lanes
    channel_outer, vector, lane = sch.split(channel, [None, vectors, lanes])
    chunk, within = _chunk(sch, found, lead, row_outer, tile, isa)
    sch.reorder(*lead[:-1], chunk, channel_outer, *within, row_inner, vector, lane)
    task = sch.fuse(*lead[:-1], chunk, channel_outer)
    parallel_if_worth(sch, task, iteration_count(sch, found.total), lanes=isa.lanes)
    sch.compute_at(found.total, within[-1], preserve_unit_loops=True)
    kinds = iter_kinds(sch, found.total)
    loops = list(sch.get_loops(found.total))[-len(kinds) :]
    split = kinds.count("S")
    tile_loops(sch, found.total, found.factors, (loops[:split], loops[split:]), tile, isa)
    for loop in (row_inner, vector):
        sch.unroll(loop)
    if loop_extent(sch, lane) == lanes:
        sch.vectorize(lane)
    for block in root_blocks(sch):
        if (
            is_injective(sch, block)
            and sch.get(block).name_hint != sch.get(found.epilogue).name_hint
        ):
            _schedule_copy(sch, block, isa)


def whole_lanes(channels: int | None, lanes: int) -> int:
    """Lanes of a vector of results: half of those of the sums where the last is half a vector.

    A part of a vector is written value by value, so halves are faster; quarters are not.
    """
    whole = vector_factor(channels, lanes)
    return whole if whole >= lanes // 2 else lanes


def _schedule_copy(sch: s_tir.Schedule, block: SBlockRV, isa: Isa) -> None:
    """Vectorizes a staged copy, or leaves that to LLVM, which has masks, where a row has a rim."""
    if _branches_along_last(sch, block):
        *outer, _ = sch.get_loops(block)
        parallel_if_worth(sch, fuse_outer(sch, outer), iteration_count(sch, block))
    else:
        schedule_block(sch, block, isa)


def _branches_along_last(sch: s_tir.Schedule, block: SBlockRV) -> bool:
    """Whether elements of one row are computed differently."""
    stmt = sch.get(block)
    value, last = getattr(stmt.body, "value", None), stmt.iter_vars[-1].var
    if not isinstance(value, Call) or not value.op.same_as(Op.get("prim.if_then_else")):
        return False
    condition = tirx.analysis.undefined_vars(value.args[0], [])
    return any(var.same_as(last) for var in condition)


def _flatten_pixels(sch: s_tir.Schedule, found: _Contraction) -> None:
    """Makes one iterator of the pixel axes of the epilogue, as they are one in the accumulator."""
    extents = [it.dom.extent for it in sch.get(found.epilogue).iter_vars]
    lead = len(extents) - 1 - found.pixel_axes

    def flat(*index: tirx.Var) -> list[tirx.Expr]:
        pixel = index[lead]
        for axis in range(lead + 1, len(index) - 1):
            pixel = pixel * extents[axis] + index[axis]
        return [*index[:lead], pixel, index[-1]]

    index_map = tirx.IndexMap.from_func(flat, ndim=len(extents), index_dtype="int64")
    sch.transform_block_layout(found.epilogue, index_map)


def _tiles(sch: s_tir.Schedule, found: _Contraction, isa: Isa) -> list[Tile]:
    """Tiles that divide the rows of the accumulator."""
    rows = iter_extents(sch, found.total)[iter_kinds(sch, found.total).count("S") - 2] or 1
    factors = found.factors
    dot = isa.dot(str(factors.data.source.dtype), size=factors.group, pair=0)
    ranked = rank_tiles(
        isa,
        rows=rows,
        vectors=found.vectors,
        padding=None,
        multiplications=dot.multiplications if dot else 1,
    )
    return [tile for tile, _ in ranked]


def _chunk(
    sch: s_tir.Schedule,
    found: _Contraction,
    lead: list[LoopRV],
    row_outer: LoopRV,
    tile: Tile,
    isa: Isa,
) -> tuple[LoopRV, list[LoopRV]]:
    """Splits the rows into chunks: (loop over chunks, loops within one)."""
    loop = lead[-1] if lead else row_outer
    extent = loop_extent(sch, loop)
    factor = 1 if extent is None else _chunk_rows(found, len(lead), extent, tile, isa)
    outer, inner = sch.split(loop, [None, factor])
    return outer, [inner, row_outer] if lead else [inner]


def _chunk_rows(found: _Contraction, lead: int, extent: int, tile: Tile, isa: Isa) -> int:
    """Rows of a chunk with which the fewest bytes come from beyond the cache.

    Data that fits the cache is read from afar once, other data once for each channel tile; so are
    weights, once or for each chunk.
    """
    step = _step_bytes(found, lead, extent, tile)
    weights = _bytes(found.factors.weight)
    tiles = int(found.factors.weight.shape[0]) // tile.vectors

    def far(factor: int) -> tuple[int, bool, int]:
        fits = factor * step <= isa.cache_bytes
        data = extent * step * (1 if fits else tiles)
        return (
            data + weights * (1 if weights <= isa.cache_bytes else extent // factor),
            not fits,
            -factor,
        )

    return min((factor for factor in range(1, extent + 1) if extent % factor == 0), key=far)


def _step_bytes(found: _Contraction, lead: int, extent: int, tile: Tile) -> int:
    """Bytes of the data that one iteration of the loop over rows adds to a chunk, at least one."""
    data = found.factors.data.source
    shape = [static(dim) or 1 for dim in data.shape]
    values = math.prod(shape[lead:]) * shape[lead - 1] // extent if lead else shape[-1] * tile.rows
    return max(1, values * int(data.dtype.bits) // 8)


def _bytes(buffer: tirx.Buffer) -> int:
    return math.prod(int(dim) for dim in buffer.shape) * int(buffer.dtype.bits) // 8


def tile_loops(
    sch: s_tir.Schedule,
    total: SBlockRV,
    factors: Factors,
    loops: tuple[list[LoopRV], list[LoopRV]],
    tile: Tile,
    isa: Isa,
) -> None:
    """Orders the loops of a sum so that one tile stays in registers.

    Args:
        sch: the schedule.
        total: the sum.
        factors: what it multiplies.
        loops: spatial ones, the last but one over the rows of one tile; and those of the reduction.
        tile: size of the tile.
        isa: of the target.
    """
    spatial, reduced = loops
    vector, lane = sch.split(spatial[-1], [tile.vectors, factors.lanes])
    group = [reduced[-1]] if factors.group > 1 else []
    outer = reduced[: len(reduced) - len(group)]
    sch.reorder(*spatial[:-2], *outer, spatial[-2], vector, lane, *group)
    sch.unroll(spatial[-2])
    sch.unroll(vector)
    if not group:
        # An update without its initial value is no block that `vectorize` takes: decompose last.
        sch.vectorize(lane)
    init = sch.decompose_reduction(total, outer[0])
    *_, row, vector, init_lane = sch.get_loops(init)
    sch.unroll(row)
    sch.unroll(vector)
    sch.vectorize(init_lane)
    dot = isa.dot(str(factors.data.source.dtype), size=factors.group, pair=0)
    if group and dot is not None:
        sch.tensorize(lane, dot_intrinsic(factors.lanes, dot, str(factors.weight.dtype)))
