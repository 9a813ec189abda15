"""Weights of convolutions and matrix products as WGT elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.backend.vta.config import Memory
from tvm_quant.backend.vta.layer import Convolution, Weighted
from tvm_quant.backend.vta.layout import View, blocks
from tvm_quant.backend.vta.program import Builder
from tvm_quant.backend.vta.tile import Window

Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Contraction:
    """Products of a tensor with weights [output block][input block][KH][KW].

    Attributes:
        view: the tensor.
        weights: address of the first WGT element.
        first: per output block, the first input block that it reads, (output blocks,).
        inputs: input blocks that it reads.
        banded: whether `first` differs.
        vertical, horizontal: windows.
    """

    view: View
    weights: int
    first: tuple[int, ...]
    inputs: int
    banded: bool
    vertical: Window
    horizontal: Window

    @property
    def taps(self) -> int:
        """Positions of the kernel."""
        return self.vertical.taps * self.horizontal.taps

    @property
    def pointwise(self) -> bool:
        """Whether each output reads the input at its own position alone."""
        return self.vertical == self.horizontal == Window()


def contraction(builder: Builder, layer: Weighted, view: View) -> Contraction:
    """The products of a layer."""
    lanes = builder.config.block
    kernel, groups = layer.kernel, getattr(layer, "groups", 1)
    first, span = _bands(kernel, groups, lanes)
    place = builder.constant(
        f"{layer.name}: weights", _elements(kernel, groups, lanes, first, span)
    )
    vertical, horizontal = _windows(layer)
    return Contraction(
        view=view,
        weights=builder.address(place, Memory.WGT),
        first=first,
        inputs=span,
        banded=groups > 1,
        vertical=vertical,
        horizontal=horizontal,
    )


def _windows(layer: Weighted) -> tuple[Window, Window]:
    if not isinstance(layer, Convolution):
        return Window(), Window()
    top, left, bottom, right = layer.padding
    taps, stride, dilation = layer.kernel.shape[2:], layer.strides, layer.dilation
    skips = taps[0] == 1 and top == bottom == 0 and stride[0] > 1
    return (
        Window(
            taps=taps[0],
            stride=stride[0],
            dilation=dilation[0] if taps[0] > 1 else 1,
            before=top,
            after=bottom,
            skips=skips,
        ),
        Window(
            taps=taps[1],
            stride=stride[1],
            dilation=dilation[1] if taps[1] > 1 else 1,
            before=left,
            after=right,
        ),
    )


def _bands(kernel: Array, groups: int, lanes: int) -> tuple[tuple[int, ...], int]:
    """Of each output block, the first input block; and how many input blocks the widest reads."""
    outputs, per_group = kernel.shape[:2]
    per_output = outputs // groups
    count = blocks(per_group * groups, lanes)
    begin = np.arange(0, outputs, lanes)
    last = np.minimum(begin + lanes, outputs) - 1
    first = begin // per_output * per_group // lanes
    end = ((last // per_output + 1) * per_group - 1) // lanes + 1
    span = int((end - first).max())
    return tuple(int(each) for each in np.minimum(first, count - span)), span


def _elements(kernel: Array, groups: int, lanes: int, first: tuple[int, ...], span: int) -> Array:
    """int8 (output block, input block, KH, KW, output lane, input lane)."""
    outputs, per_group, *taps = kernel.shape
    per_output, inputs = outputs // groups, per_group * groups
    padded = np.zeros((len(first) * lanes, blocks(inputs, lanes) * lanes, *taps), np.int8)
    for group in range(groups):
        rows = slice(group * per_output, (group + 1) * per_output)
        padded[rows, group * per_group : (group + 1) * per_group] = kernel[rows]
    split = padded.reshape(len(first), lanes, -1, lanes, *taps)
    bands = np.stack([split[block, :, start : start + span] for block, start in enumerate(first)])
    return np.ascontiguousarray(bands.transpose(0, 2, 4, 5, 1, 3))
