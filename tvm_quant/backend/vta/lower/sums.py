"""Sums: products and added tensors, shifted and clipped, tile by tile."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tvm_quant.backend.vta.config import Memory
from tvm_quant.backend.vta.layout import View
from tvm_quant.backend.vta.lower.contraction import Contraction
from tvm_quant.backend.vta.lower.diagonal import Diagonal
from tvm_quant.backend.vta.lower.epilogue import Epilogue, left_shift
from tvm_quant.backend.vta.lower.pipeline import Pipeline
from tvm_quant.backend.vta.lower.transfers import rectangles
from tvm_quant.backend.vta.program import Builder
from tvm_quant.backend.vta.tile import SHORT_LOOP, Tile, Window, Work, capacities
from tvm_quant.errors import UnsupportedError

LARGEST_PADDING = 15


@dataclass(frozen=True, kw_only=True)
class Sums:
    """What a layer adds up.

    Attributes:
        name: of the layer.
        output: where results go.
        diagonals: added first, in order.
        contraction: products with weights, or None.
        epilogue: what follows.
    """

    name: str
    output: View
    diagonals: tuple[Diagonal, ...]
    contraction: Contraction | None
    epilogue: Epilogue

    @property
    def work(self) -> Work:
        """Extents, to choose a tile."""
        products = self.contraction
        return Work(
            name=self.name,
            rows=self.output.height,
            columns=self.output.width,
            outputs=self.output.planes,
            samples=self.output.samples,
            inputs=products.inputs if products else 0,
            banded=bool(products and products.banded),
            vertical=products.vertical if products else Window(),
            horizontal=products.horizontal if products else Window(),
            diagonals=len(self.diagonals),
            vectors=self.epilogue.vectors,
            epilogue=self.epilogue.cycles,
        )


@dataclass(frozen=True, kw_only=True)
class Part:
    """One tile: a box of the output, and where its sums lie."""

    sample: int
    plane: int
    row: int
    column: int
    planes: int
    rows: int
    columns: int
    acc: int

    @property
    def area(self) -> int:
        """Sums per channel block."""
        return self.rows * self.columns

    @property
    def loops(self) -> int:
        """Rows of sums, with rows that nobody reads where a loop would be too short."""
        return max(self.planes * self.rows, SHORT_LOOP)


def emit_sums(builder: Builder, pipeline: Pipeline, sums: Sums, tile: Tile) -> None:
    """Instructions of a layer."""
    half = builder.config.depth(Memory.ACC) // 2
    for box in boxes(sums.output, tile):
        with pipeline.tile() as parity:
            part = Part(**box, acc=parity * half)
            builder.reset(part.acc, part.loops * part.columns)
            for diagonal in sums.diagonals:
                _emit_diagonal(builder, pipeline, diagonal, part)
            if sums.contraction is not None:
                _emit_contraction(builder, pipeline, sums.contraction, part, tile.inputs)
            constants = part.acc + part.loops * part.columns
            sums.epilogue.emit(part.acc, constants, part.plane, part.planes, part.area)
        emit_stores(builder, pipeline, sums.output, part)


def boxes(output: View, tile: Tile) -> list[dict[str, int]]:
    """The tiles of an output; channel blocks change last."""
    return [
        {
            "sample": sample,
            "plane": plane,
            "row": row,
            "column": column,
            "planes": min(tile.outputs, output.planes - plane),
            "rows": min(tile.rows, output.height - row),
            "columns": min(tile.columns, output.width - column),
        }
        for plane in range(0, output.planes, tile.outputs)
        for sample in range(output.samples)
        for row in range(0, output.height, tile.rows)
        for column in range(0, output.width, tile.columns)
    ]


def emit_stores(builder: Builder, pipeline: Pipeline, output: View, part: Part) -> None:
    """STOREs of a tile."""
    address = output.at(part.plane, part.sample, part.row, part.column)
    with pipeline.storing():
        for chip, dram, rows, columns, stride in rectangles(
            part.planes, output.plane_stride, part.rows, part.columns, output.width
        ):
            builder.store(part.acc + chip, address + dram, rows, columns, stride)


def load_box(builder: Builder, view: View, part: Part, inp: int) -> None:
    """LOADs of a tensor of the output's shape."""
    address = view.at(part.plane, part.sample, part.row, part.column)
    for chip, dram, rows, columns, stride in rectangles(
        part.planes, view.plane_stride, part.rows, part.columns, view.width
    ):
        builder.load(Memory.INP, inp + chip, address + dram, rows, columns, stride)


def bases(builder: Builder, parity: int) -> tuple[int, int]:
    """First INP and WGT element of a half."""
    have = capacities(builder.config, extended=builder.extended)
    return parity * have[Memory.INP], parity * have[Memory.WGT]


def _emit_diagonal(builder: Builder, pipeline: Pipeline, diagonal: Diagonal, part: Part) -> None:
    count = part.planes if diagonal.per_block else 1
    with pipeline.loading() as parity:
        inp, wgt = bases(builder, parity)
        load_box(builder, diagonal.view, part, inp)
        address = diagonal.weights + (part.plane if diagonal.per_block else 0)
        builder.load(Memory.WGT, wgt, address, 1, count, count)
    with pipeline.consuming():
        factors = (part.area, 1)
        builder.gemm(
            (np.array([part.acc]), inp, wgt),
            part.planes,
            part.area,
            dst=factors,
            src=factors,
            wgt=(int(diagonal.per_block), 0),
        )
    for step in left_shift(diagonal.shift, extended=builder.extended):
        assert isinstance(step.operand, int)
        builder.immediate(step.op, step.operand, part.acc, part.planes * part.area)


@dataclass(frozen=True)
class _Reach:
    """Inputs along one axis: `count` from `start` in DRAM, and padding before and after."""

    start: int
    count: int
    before: int
    after: int

    @classmethod
    def of(cls, window: Window, first: int, outputs: int, extent: int) -> _Reach:
        start, span = first * window.stride - window.before, window.span(outputs)
        if window.skips:
            return cls(start, span, 0, 0)
        before, after = max(0, -start), max(0, start + span - extent)
        return cls(start + before, span - before - after, before, after)

    @property
    def span(self) -> int:
        return self.before + self.count + self.after


def _emit_contraction(
    builder: Builder, pipeline: Pipeline, products: Contraction, part: Part, most: int
) -> None:
    view = products.view
    rows = _Reach.of(products.vertical, part.row, part.rows, view.height)
    columns = _Reach.of(products.horizontal, part.column, part.columns, view.width)
    if rows.count <= 0 or columns.count <= 0:
        return  # nothing but padding
    for first in range(0, products.inputs, most):
        count = min(most, products.inputs - first)
        with pipeline.loading() as parity:
            inp, wgt = bases(builder, parity)
            _load_inputs(builder, products, part, (rows, columns), (first, count), inp)
            stride = products.inputs * products.taps
            builder.load(
                Memory.WGT,
                wgt,
                products.weights + part.plane * stride + first * products.taps,
                part.planes,
                count * products.taps,
                stride,
            )
        with pipeline.consuming():
            _multiply(builder, products, part, (rows.span, columns.span), count, (inp, wgt))


def _load_inputs(
    builder: Builder,
    products: Contraction,
    part: Part,
    reach: tuple[_Reach, _Reach],
    span: tuple[int, int],
    inp: int,
) -> None:
    (rows, columns), (first, count), view = reach, span, products.view
    pads = (rows.before, rows.after, columns.before, columns.after)
    if max(pads) > LARGEST_PADDING:
        raise UnsupportedError(
            f"VTA: a load with padding {pads}, expected at most {LARGEST_PADDING} on each side: "
            "keep the layer on the CPU."
        )
    step = products.vertical.stride if products.vertical.skips else 1
    area = rows.span * columns.span
    starts = [products.first[part.plane] + first]
    planes = count
    if products.banded:
        starts = [products.first[part.plane + each] + first for each in range(part.planes)]
        planes = 1
    if any(pads) and planes > 1:
        starts, planes = [starts[0] + each for each in range(planes)], 1
    for index, plane in enumerate(starts):
        address = view.at(plane, part.sample, rows.start, columns.start)
        base = inp + index * area
        if any(pads):
            stride = step * view.width
            builder.load(Memory.INP, base, address, rows.count, columns.count, stride, pads)
            continue
        for chip, dram, height, width, stride in rectangles(
            planes, view.plane_stride, rows.count, columns.count, step * view.width
        ):
            builder.load(Memory.INP, base + chip, address + dram, height, width, stride)


def _multiply(
    builder: Builder,
    products: Contraction,
    part: Part,
    window: tuple[int, int],
    count: int,
    base: tuple[int, int],
) -> None:
    """GEMM: micro-ops (tap, channel block, row), outer loop input blocks, inner loop columns."""
    (height, width), (inp, wgt) = window, base
    vertical, horizontal = products.vertical, products.horizontal
    blocks_per_step = 1 if products.banded else count
    loop = np.arange(part.loops)
    # Rows that only fill a short loop read what the first one reads.
    real = np.where(loop < part.planes * part.rows, loop, 0)
    plane, row = real // part.rows, real % part.rows
    dy = np.arange(vertical.taps)[:, None, None]
    dx = np.arange(horizontal.taps)[:, None]
    src = (row * vertical.step + dy * vertical.dilation) * width + dx * horizontal.dilation
    if products.banded:
        src = src + plane * height * width
    weight = plane * (blocks_per_step * products.taps) + dy * horizontal.taps + dx
    dst = np.broadcast_to(part.acc + loop * part.columns, src.shape)
    builder.gemm(
        (dst.ravel(), (inp + src).ravel(), (wgt + weight).ravel()),
        blocks_per_step,
        part.columns,
        dst=(0, 1),
        src=(height * width if blocks_per_step > 1 else 0, horizontal.step),
        wgt=(products.taps if blocks_per_step > 1 else 0, 0),
    )
