"""Vectors over output channels, in the shapes of weights and results."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from tvm_quant.ir import op_name
from tvm_quant.op import ContractionAxes, contraction_axes

Array = npt.NDArray[Any]


def along(vector: Array, axis: int, ndim: int) -> Array:
    """A vector as an array of `ndim` axes that runs along `axis`."""
    shape = [1] * ndim
    shape[axis] = -1
    return vector.reshape(shape)


def with_last_axis(array: Array) -> Array:
    """One more axis at the end, which a number does not need to broadcast."""
    return array[..., None] if array.ndim else array


def with_rank(array: Array, ndim: int) -> Array:
    """An array with axes of one in front, as broadcasting sees it."""
    return array.reshape((1,) * (ndim - array.ndim) + array.shape)


def scale_per_output(call: relax.Call, scale: Array, weight_shape: tuple[int, ...]) -> Array:
    """Scale of the weights of each output channel of a contraction, broadcastable to the result."""
    axes = contraction_axes(call)
    if scale.size == 1:
        return scale.reshape(())
    if op_name(call) == "relax.matmul":
        return with_rank(scale, int(call.ty.ndim))
    if axes.transposed:
        rows = np.broadcast_to(scale, (weight_shape[0], *scale.shape[1:]))
        scale = rows[:: weight_shape[0] // axes.weight_blocks]
    return along(scale.reshape(-1), axes.output, int(call.ty.ndim))


def to_weight_shape(vector: Array, like: Array, axes: ContractionAxes) -> Array:
    """A vector (O,) in the shape of a weight's scale `like`.

    A scale per tensor gets the largest element.
    """
    if like.size == 1:
        return np.asarray(vector.max()).reshape(like.shape)
    if axes.weight_blocks > 1:
        blocks = vector.reshape(axes.weight_blocks, -1)
        rows = np.repeat(blocks, like.shape[0] // axes.weight_blocks, axis=0)
        return rows.reshape(like.shape)
    return vector.reshape(like.shape)


def to_output_vector(values: Array, axis: int, result: relax.Var, channels: int) -> Array:
    """The largest element of `values`, broadcast to `result`, in each channel: (channels,)."""
    ndim = int(result.ty.ndim)
    values = with_rank(np.asarray(values), ndim)
    reduced = values.max(axis=tuple(a for a in range(values.ndim) if a != axis))
    return np.broadcast_to(reduced, (channels,))


def weight_by_output(weight: Array, axes: ContractionAxes) -> Array:
    """A weight as (O, input channel of the group, tap).

    For a transposed convolution, output channel g * O/groups + o is slice o of block g.
    """
    order = [axes.weight_output, axes.weight_input]
    order += [axis for axis in range(weight.ndim) if axis not in order]
    moved = weight.transpose(order)
    moved = moved.reshape(*moved.shape[:2], -1)
    if axes.weight_blocks == 1:
        return moved
    outputs, inputs, taps = moved.shape
    blocks = moved.reshape(outputs, axes.groups, inputs // axes.groups, taps)
    return blocks.swapaxes(0, 1).reshape(axes.groups * outputs, -1, taps)


def by_input_group(vector: Array, axes: ContractionAxes, outputs: int) -> Array:
    """A vector over input channels as each output channel sees it: (O, inputs of the group)."""
    groups = vector.reshape(axes.groups, -1)
    return np.repeat(groups, outputs // axes.groups, axis=0)
