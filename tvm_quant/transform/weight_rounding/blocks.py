"""Blocks: the inputs of a contraction that are rounded together."""

from __future__ import annotations

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
        self._place = weight_by_output(np.arange(np.prod(shape)).reshape(shape), axes)
        self.outputs, self.inputs, self.taps = self._place.shape
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
        weight = np.empty(self._place.size, blocks.dtype)
        weight[self._place.reshape(-1)] = groups.transpose(0, 3, 1, 2).reshape(-1)
        return weight.reshape(self.shape)

    def sum_parts(self, sums: Array) -> Array:
        """What the blocks add to their output channels, (B, R), summed: (O,)."""
        return np.asarray(sums.reshape(-1, self.parts, self.rows).sum(axis=1).reshape(-1))

    def slices(self) -> Iterator[slice]:
        """The blocks, as many at a time as `ELEMENTS` allows."""
        columns = self.channels * self.taps
        some = max(1, ELEMENTS // (columns * max(columns, self.rows)))
        for start in range(0, self.axes.groups * self.parts, some):
            yield slice(start, start + some)

    def _split(self, groups: Array) -> Array:
        """(G, inputs, taps, any) as (B, K, any)."""
        missing = self.parts * self.channels - self.inputs
        if missing:
            groups = np.pad(groups, ((0, 0), (0, missing), (0, 0), (0, 0)))
        blocks = self.axes.groups * self.parts
        size = blocks, self.channels * self.taps, groups.shape[3]
        return np.ascontiguousarray(groups.reshape(size))
