"""Max pooling: the input window is copied into ACC, and each position of the window compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tvm_quant.backend.vta.config import Memory
from tvm_quant.backend.vta.isa import AluOp
from tvm_quant.backend.vta.layer import INT8_LOW, MaxPool
from tvm_quant.backend.vta.layout import View
from tvm_quant.backend.vta.lower.diagonal import Diagonal
from tvm_quant.backend.vta.lower.pipeline import Pipeline
from tvm_quant.backend.vta.lower.sums import Part, bases, boxes, emit_stores, load_box
from tvm_quant.backend.vta.program import Builder
from tvm_quant.backend.vta.tile import Tile, Window, Work


@dataclass(frozen=True, kw_only=True)
class Pool:
    """What a pool reads and writes; `copy` multiplies by one."""

    layer: MaxPool
    output: View
    copy: Diagonal

    @property
    def windows(self) -> tuple[Window, Window]:
        """Vertical and horizontal; padding is left out, for it never is the largest."""
        top, left, _, _ = self.layer.padding
        return tuple(  # type: ignore[return-value]
            Window(taps=taps, stride=stride, before=before)
            for taps, stride, before in zip(
                self.layer.window, self.layer.strides, (top, left), strict=True
            )
        )

    @property
    def work(self) -> Work:
        """Extents, to choose a tile."""
        vertical, horizontal = self.windows
        return Work(
            name=self.layer.name,
            rows=self.output.height,
            columns=self.output.width,
            outputs=self.output.planes,
            samples=self.output.samples,
            vertical=vertical,
            horizontal=horizontal,
            epilogue=1 + 2 * vertical.taps * horizontal.taps,
            keeps_window=True,
        )


def emit_pool(builder: Builder, pipeline: Pipeline, pool: Pool, tile: Tile) -> None:
    """Instructions of a layer."""
    half = builder.config.depth(Memory.ACC) // 2
    for box in boxes(pool.output, tile):
        with pipeline.tile() as parity:
            part = Part(**box, acc=parity * half)
            count = part.planes * part.area
            builder.reset(part.acc, count)
            builder.immediate(AluOp.ADD, INT8_LOW, part.acc, count)
            _compare(builder, pipeline, pool, part)
        emit_stores(builder, pipeline, pool.output, part)


def _compare(builder: Builder, pipeline: Pipeline, pool: Pool, part: Part) -> None:
    vertical, horizontal = pool.windows
    view = pool.copy.view
    first_row, rows = _inside(vertical, part.row, part.rows, view.height)
    first_column, columns = _inside(horizontal, part.column, part.columns, view.width)
    if rows <= 0 or columns <= 0:
        return  # nothing but padding
    source = Part(
        sample=part.sample,
        plane=part.plane,
        row=first_row,
        column=first_column,
        planes=part.planes,
        rows=rows,
        columns=columns,
        acc=part.acc + part.planes * part.area,
    )
    _copy(builder, pipeline, pool.copy, source)
    for dy in range(vertical.taps):
        for dx in range(horizontal.taps):
            _compare_position(builder, pool, part, source, (dy, dx))


def _inside(window: Window, first: int, outputs: int, extent: int) -> tuple[int, int]:
    """First input, and number of inputs, that the outputs read."""
    start = first * window.stride - window.before
    end = min(start + window.span(outputs), extent)
    return max(start, 0), end - max(start, 0)


def _copy(builder: Builder, pipeline: Pipeline, copy: Diagonal, source: Part) -> None:
    with pipeline.loading() as parity:
        inp, wgt = bases(builder, parity)
        load_box(builder, copy.view, source, inp)
        builder.load(Memory.WGT, wgt, copy.weights, 1, 1, 1)
    count = source.planes * source.area
    builder.reset(source.acc, count)
    with pipeline.consuming():
        ops = (np.array([source.acc]), inp, wgt)
        builder.gemm(ops, 1, count, dst=(0, 1), src=(0, 1), wgt=(0, 0))


def _compare_position(
    builder: Builder, pool: Pool, part: Part, source: Part, position: tuple[int, int]
) -> None:
    vertical, horizontal = pool.windows
    rows = _valid(vertical, position[0], part.row, part.rows, source.row, source.rows)
    columns = _valid(
        horizontal, position[1], part.column, part.columns, source.column, source.columns
    )
    if not len(rows) or not len(columns):
        return
    row = (part.row + rows[0]) * vertical.stride - vertical.before + position[0] - source.row
    column = (
        (part.column + columns[0]) * horizontal.stride
        - horizontal.before
        + position[1]
        - source.column
    )
    planes = np.arange(part.planes)
    builder.alu(
        AluOp.MAX,
        part.acc + planes * part.area + rows[0] * part.columns + columns[0],
        source.acc + planes * source.area + row * source.columns + column,
        len(rows),
        len(columns),
        dst=(part.columns, 1),
        src=(vertical.stride * source.columns, horizontal.stride),
    )


def _valid(window: Window, tap: int, first: int, outputs: int, start: int, count: int) -> range:
    """The outputs of a tile that read an input, not padding, at a position of the window."""
    inside = [
        each
        for each in range(outputs)
        if start <= (first + each) * window.stride - window.before + tap < start + count
    ]
    return range(inside[0], inside[-1] + 1) if inside else range(0)
