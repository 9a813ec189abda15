"""Patches: what a contraction multiplies with its weights, at some of its output positions.

    conv2d    y[n, o, p] = sum over c, t of w[o, c, t] * patch[n, c, t, p]

`taken` picks the elements of a few positions, so that nothing larger is kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from tvm_quant.ir import op_name, tensor_shape
from tvm_quant.op import contraction_axes
from tvm_quant.transform.kernel_axes import kernel_axes

Array = npt.NDArray[Any]

#: Output positions along each axis, at most.
POSITIONS = 6


@dataclass(frozen=True, kw_only=True)
class Patches:
    """How to read the patches of a contraction.

    Attributes:
        rows: axis of the samples.
        channels: axis of the input channels.
        reads: {axis: (index, meets)}, (P, T) each, of every other axis; see `KernelAxis.reads`.
    """

    rows: int
    channels: int
    reads: dict[int, tuple[Array, Array]]

    @classmethod
    def of(cls, call: relax.Call) -> Patches | None:
        """Those of a contraction; None where an axis is symbolic, or each matrix has its own."""
        channels = contraction_axes(call).data
        if op_name(call) == "relax.matmul":
            return cls._of_matmul(call, channels)
        axes = kernel_axes(call)
        if any(axis.inputs is None or axis.outputs is None for axis in axes):
            return None
        reads = {axis.data: axis.reads(_spread(axis.outputs or 0)) for axis in axes}
        return cls(rows=str(call.attrs.data_layout).index("N"), channels=channels, reads=reads)

    @classmethod
    def _of_matmul(cls, call: relax.Call, channels: int) -> Patches | None:
        data, weight = (tensor_shape(operand) or () for operand in call.args)
        inner = data[1:-1]
        if len(data) < 2 or len(weight) != 2 or None in inner:
            return None
        spread = [_spread(size or 0)[:, None] for size in inner]
        reads = {axis: (index, index >= 0) for axis, index in enumerate(spread, 1)}
        return cls(rows=0, channels=channels, reads=reads)

    def taken(self, data: Array) -> Array:
        """The elements of operand 0 that the patches hold: sizes P * T along the read axes."""
        for axis, (index, _meets) in self.reads.items():
            data = data.take(index.reshape(-1), axis=axis, mode="clip")
        return data

    def arranged(self, taken: Array) -> Array:
        """Values of `taken` as patches: (samples, input channels, taps, positions)."""
        sizes = [size for _index, meets in self.reads.values() for size in meets.shape]
        moved = taken.transpose([self.rows, self.channels, *self.reads])
        grid = moved.reshape(*moved.shape[:2], *sizes)
        count = len(self.reads)
        for place, (_index, meets) in enumerate(self.reads.values()):
            if not meets.all():
                grid = grid * meets.reshape(*meets.shape, *[1] * 2 * (count - place - 1))
        positions, taps = (range(first, 2 + 2 * count, 2) for first in (2, 3))
        patches = grid.transpose(0, 1, *taps, *positions)
        flat = math.prod(sizes[1::2]), math.prod(sizes[::2])
        return np.asarray(patches.reshape(*moved.shape[:2], *flat))


def _spread(size: int) -> Array:
    """At most `POSITIONS` positions out of `size`, evenly spaced."""
    count = min(size, POSITIONS)
    return np.asarray((np.arange(count) * 2 + 1) * size // (2 * max(count, 1)))
