"""Blocks: the inputs of a contraction that are rounded together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.op import ContractionAxes
from tvm_quant.transform.channel_vector import weight_by_output

Array = npt.NDArray[Any]

#: Weights of an output channel that are rounded together, at most (or all taps of one input).
COLUMNS = 512
#: Weights or covariances that are worked on at once, at most (or one block of them).
ELEMENTS = 2**20


class Blocks:
    """The weights of a contraction as independent problems: (B, K, R).

    Each of B blocks holds the K weights by which R output channels multiply the same inputs: the
    channels of a group, or where these are many, equal parts of them, the last one filled up.

    Args:
        shape: of the weight.
        axes: of the contraction.
    """

    def __init__(self, shape: tuple[int, ...], axes: ContractionAxes):
        self.shape = shape
        self.axes = axes
        by_output = weight_by_output(np.empty(shape, np.int8), axes)
        self.outputs, self.inputs, self.taps = by_output.shape
        self.rows = self.outputs // axes.groups
        self.parts = -(-self.inputs * self.taps // COLUMNS)
        self.channels = -(-self.inputs // self.parts)
        self.parts = -(-self.inputs // self.channels)

    def of_weight(self, weight: Array) -> Array:
        """The weight as blocks: (B, K, R)."""
        by_row = weight_by_output(weight, self.axes)
        by_row = by_row.reshape(self.axes.groups, self.rows, self.inputs, self.taps)
        return self._split(by_row.transpose(0, 2, 3, 1))

    def of_outputs(self, vector: Array) -> Array:
        """A vector over the output channels, (O,), beside the blocks: (B, 1, R)."""
        groups = vector.reshape(self.axes.groups, 1, self.rows)
        return np.repeat(groups, self.parts, axis=0)

    def of_patches(self, patches: Array) -> Array:
        """Patches (input channels, taps, positions) as blocks: (B, K, positions)."""
        return self._split(patches.reshape(self.axes.groups, self.inputs, *patches.shape[1:]))

    def to_weight(self, blocks: Array) -> Array:
        """Inverse of `of_weight`, in the shape of the weight."""
        groups = blocks.reshape(self.axes.groups, -1, self.taps, self.rows)[:, : self.inputs]
        weight = np.empty(math.prod(self.shape), blocks.dtype)
        places = np.arange(weight.size, dtype=np.min_scalar_type(weight.size))
        by_output = weight_by_output(places.reshape(self.shape), self.axes)
        weight[by_output.reshape(-1)] = groups.transpose(0, 3, 1, 2).reshape(-1)
        return weight.reshape(self.shape)

    def sum_parts(self, sums: Array) -> Array:
        """What the blocks add to their output channels, (B, R), summed: (O,)."""
        return np.asarray(sums.reshape(-1, self.parts, self.rows).sum(axis=1).reshape(-1))

    def slices(self) -> Iterator[tuple[slice, list[slice]]]:
        """Some blocks and some of their rows at a time, as many as `ELEMENTS` allows.

        Yields:
            (blocks, [rows, rows, ...]): together all of (B, ..., R).
        """
        columns = self.channels * self.taps
        some = max(1, ELEMENTS // (columns * max(columns, self.rows)))
        rows = max(1, ELEMENTS // (columns * some))
        for start in range(0, self.axes.groups * self.parts, some):
            by_rows = [slice(row, row + rows) for row in range(0, self.rows, rows)]
            yield slice(start, start + some), by_rows

    def _split(self, groups: Array) -> Array:
        """(G, inputs, taps, any) as (B, K, any)."""
        missing = self.parts * self.channels - self.inputs
        if missing:
            groups = np.pad(groups, ((0, 0), (0, missing), (0, 0), (0, 0)))
        blocks = self.axes.groups * self.parts
        size = blocks, self.channels * self.taps, groups.shape[3]
        return np.ascontiguousarray(groups.reshape(size))
