"""Operators that move values without changing them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, tirx

from tvm_quant.errors import UnsupportedError
from tvm_quant.ir import constant
from tvm_relay.expr import Attrs
from tvm_relay.op.base import emit, number, rank, relay_op, shape
from tvm_relay.op.reshape_codes import decode


@relay_op("reshape")
def reshape(data: relax.Expr, /, newshape: Any, allowzero: bool = False) -> relax.Expr:
    codes = (newshape,) if isinstance(newshape, int) else newshape
    return relax.op.reshape(data, decode(shape(data), codes, allowzero))


@relay_op("reshape_like")
def reshape_like(
    data: relax.Expr,
    shape_like: relax.Expr,
    /,
    lhs_begin: int = 0,
    lhs_end: int | None = None,
    rhs_begin: int = 0,
    rhs_end: int | None = None,
) -> relax.Expr:
    """Dimensions [lhs_begin, lhs_end) of `data` become those in [rhs_begin, rhs_end)."""
    own, other = shape(data), shape(shape_like)
    stop = len(own) if lhs_end is None else lhs_end % (len(own) + 1)
    dims = own[:lhs_begin] + other[rhs_begin:rhs_end] + own[stop:]
    return relax.op.reshape(data, dims)


@relay_op("nn.batch_flatten")
def batch_flatten(data: relax.Expr, /) -> relax.Expr:
    return relax.op.reshape(data, (shape(data)[0], -1))


@relay_op("transpose")
def transpose(data: relax.Expr, /, axes: Sequence[int] | None = None) -> relax.Expr:
    return relax.op.permute_dims(data, [int(a) % rank(data) for a in axes] if axes else None)


@relay_op("squeeze")
def squeeze(data: relax.Expr, /, axis: Any = None) -> relax.Expr:
    return relax.op.squeeze(data, [axis] if isinstance(axis, int) else axis)


@relay_op("expand_dims")
def expand_dims(data: relax.Expr, /, axis: int, num_newaxis: int = 1) -> relax.Expr:
    start = axis if axis >= 0 else rank(data) + 1 + axis
    return relax.op.expand_dims(data, [start + i for i in range(num_newaxis)])


@relay_op("broadcast_to")
def broadcast_to(data: relax.Expr, /, shape: Sequence[int], dtype: str = "") -> relax.Expr:
    return relax.op.broadcast_to(data, tuple(shape))


@relay_op("broadcast_to_like")
def broadcast_to_like(data: relax.Expr, broadcast_type: relax.Expr, /) -> relax.Expr:
    return relax.op.broadcast_to(data, shape(broadcast_type))


@relay_op("collapse_sum_like")
def collapse_sum_like(data: relax.Expr, collapse_type: relax.Expr, /) -> relax.Expr:
    return relax.op.collapse_sum_like(data, collapse_type)


@relay_op("concatenate")
def concatenate(data: relax.Expr, /, axis: int) -> relax.Expr:
    return relax.op.concat(data, int(axis))


@relay_op("stack")
def stack(data: relax.Expr, /, axis: int) -> relax.Expr:
    return relax.op.stack(data, int(axis))


def _parts(attrs: Attrs) -> int:
    cut = attrs.indices_or_sections
    return cut if isinstance(cut, int) else len(cut) + 1


@relay_op("split", fields=_parts)
def split(data: relax.Expr, /, indices_or_sections: Any, axis: int = 0) -> relax.Expr:
    cut = indices_or_sections
    return relax.op.split(data, cut if isinstance(cut, int) else [int(i) for i in cut], axis)


@relay_op("strided_slice", order=("data", "begin", "end", "strides", "axes", "slice_mode"))
def strided_slice(
    data: relax.Expr,
    /,
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int] | None = None,
    slice_mode: str = "end",
    axes: Sequence[int] | None = None,
) -> relax.Expr:
    """With slice_mode "size", `end` holds extents, -1 for all that is left, and strides are 1."""
    axes = [int(a) for a in axes] if axes is not None else list(range(len(begin)))
    begin, end = [int(b) for b in begin], [int(e) for e in end]
    if slice_mode == "size":
        dims = [shape(data)[a] for a in axes]
        end = [d if e < 0 else b + e for b, e, d in zip(begin, end, dims, strict=True)]
        strides = None
    steps = [int(s) for s in strides] if strides else [1] * len(axes)
    steps += [steps[-1]] * (len(axes) - len(steps))
    return relax.op.strided_slice(data, axes, begin, end, steps)


@relay_op("slice_like")
def slice_like(
    data: relax.Expr, shape_like: relax.Expr, /, axes: Sequence[int] | None = None
) -> relax.Expr:
    other = shape(shape_like)
    chosen = [int(a) % rank(data) for a in axes] if axes else list(range(len(other)))
    ends = [other[a] for a in chosen]
    return relax.op.strided_slice(data, chosen, [0] * len(chosen), ends, [1] * len(chosen))


@relay_op("tile")
def tile(data: relax.Expr, /, reps: Sequence[int]) -> relax.Expr:
    return relax.op.tile(data, [int(r) for r in reps])


@relay_op("repeat")
def repeat(data: relax.Expr, /, repeats: int, axis: int) -> relax.Expr:
    return relax.op.repeat(data, int(repeats), axis)


@relay_op("reverse")
def reverse(data: relax.Expr, /, axis: int) -> relax.Expr:
    return relax.op.flip(data, axis)


@relay_op("layout_transform")
def layout_transform(data: relax.Expr, /, src_layout: str, dst_layout: str) -> relax.Expr:
    """A permutation; layouts with split axes, such as NCHW4c, come from lowering."""
    if sorted(src_layout) != sorted(dst_layout) or not src_layout.isupper():
        raise UnsupportedError(
            f"layout_transform from {src_layout} to {dst_layout}: only permutations are converted. "
            "Give the network before AlterOpLayout."
        )
    return relax.op.permute_dims(data, [src_layout.index(axis) for axis in dst_layout])


@relay_op("shape_of")
def shape_of(data: relax.Expr, /, dtype: str = "int32") -> relax.Expr:
    dims = shape(data)
    if all(isinstance(dim, int) for dim in dims):
        return constant(np.asarray(dims, dtype))
    tensor = emit(relax.op.shape_to_tensor(emit(relax.op.shape_of(data))))
    return relax.op.astype(tensor, dtype)


@relay_op("take")
def take(
    data: relax.Expr,
    indices: relax.Expr,
    /,
    axis: int | None = None,
    batch_dims: int = 0,
    mode: str = "clip",
) -> relax.Expr:
    if batch_dims:
        raise UnsupportedError(f"take with batch_dims={batch_dims}; only 0 is converted.")
    if axis is None:
        data, axis = emit(relax.op.reshape(data, (-1,))), 0
    return relax.op.take(data, indices, axis, mode)


@relay_op("gather", order=("data", "axis", "indices"))
def gather(data: relax.Expr, indices: relax.Expr, /, axis: int) -> relax.Expr:
    return relax.op.gather_elements(data, indices, axis)


@relay_op("gather_nd")
def gather_nd(
    data: relax.Expr, indices: relax.Expr, /, batch_dims: int = 0, index_rank: int | None = None
) -> relax.Expr:
    """Coordinates stand along the first axis of `indices`."""
    order = [*range(1, rank(indices)), 0]
    return relax.op.gather_nd(data, emit(relax.op.permute_dims(indices, order)), batch_dims)


@relay_op("scatter_elements")
def scatter_elements(
    data: relax.Expr,
    indices: relax.Expr,
    updates: relax.Expr,
    /,
    axis: int = 0,
    reduction: str = "update",
) -> relax.Expr:
    return relax.op.scatter_elements(data, indices, updates, axis, reduction)


@relay_op("one_hot", order=("indices", "on_value", "off_value", "depth", "axis", "dtype"))
def one_hot(
    indices: relax.Expr,
    on_value: relax.Expr,
    off_value: relax.Expr,
    /,
    depth: int,
    axis: int,
    dtype: str,
) -> relax.Expr:
    on, off = (number(v, "one_hot: a value").item() for v in (on_value, off_value))
    values = tirx.const(on, dtype), tirx.const(off, dtype)
    return relax.op.one_hot(indices, *values, depth, axis)


@relay_op("nn.depth_to_space")
def depth_to_space(
    data: relax.Expr, /, block_size: int, layout: str = "NCHW", mode: str = "DCR"
) -> relax.Expr:
    n, c, h, w = _channels_first(data, layout)
    b = block_size
    inner = (n, b, b, c // (b * b), h, w) if mode == "DCR" else (n, c // (b * b), b, b, h, w)
    order = [0, 3, 4, 1, 5, 2] if mode == "DCR" else [0, 1, 4, 2, 5, 3]
    blocks = emit(relax.op.reshape(_to(data, layout, "NCHW"), inner))
    moved = emit(relax.op.permute_dims(blocks, order))
    return _to(emit(relax.op.reshape(moved, (n, c // (b * b), h * b, w * b))), "NCHW", layout)


@relay_op("nn.space_to_depth")
def space_to_depth(data: relax.Expr, /, block_size: int, layout: str = "NCHW") -> relax.Expr:
    n, c, h, w = _channels_first(data, layout)
    b = block_size
    blocks = emit(relax.op.reshape(_to(data, layout, "NCHW"), (n, c, h // b, b, w // b, b)))
    moved = emit(relax.op.permute_dims(blocks, [0, 3, 5, 1, 2, 4]))
    return _to(emit(relax.op.reshape(moved, (n, c * b * b, h // b, w // b))), "NCHW", layout)


def _channels_first(data: relax.Expr, layout: str) -> list[Any]:
    return [shape(data)[layout.index(axis)] for axis in "NCHW"]


def _to(data: relax.Expr, layout: str, wanted: str) -> relax.Expr:
    if layout == wanted:
        return data
    return emit(relax.op.permute_dims(data, [layout.index(axis) for axis in wanted]))
