"""Choosing how much of a layer is on the chip at once.

Every memory is used in two halves: one is filled while the other is computed on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.backend.vta.config import Memory, VtaConfig
from tvm_quant.errors import UnsupportedError

Array = npt.NDArray[Any]

LATENCY = 16  # cycles of a transfer before its first byte
BUS_BYTES = 8  # a cycle
PIPELINE = 4  # cycles of a GEMM or ALU instruction before its first result
SHORT_LOOP = 3  # a sum may not be written again within two steps


@dataclass(frozen=True, kw_only=True)
class Tile:
    """Output rows, columns and channel blocks of a tile, and input channel blocks of a step."""

    rows: int
    columns: int
    outputs: int = 1
    inputs: int = 1


@dataclass(frozen=True, kw_only=True)
class Window:
    """How outputs along one axis read inputs.

    Attributes:
        taps: extent of the kernel.
        stride, dilation: distances.
        before, after: padding.
        skips: whether inputs between the strides stay in DRAM.
    """

    taps: int = 1
    stride: int = 1
    dilation: int = 1
    before: int = 0
    after: int = 0
    skips: bool = False

    def span(self, outputs: Any) -> Any:
        """Inputs on the chip for that many neighbouring outputs."""
        if self.skips:
            return outputs
        return (outputs - 1) * self.stride + (self.taps - 1) * self.dilation + 1

    @property
    def step(self) -> int:
        """Inputs on the chip from an output to the next."""
        return 1 if self.skips else self.stride


@dataclass(frozen=True, kw_only=True)
class Work:
    """The extents of a layer, for which a tile is chosen.

    Attributes:
        name: of the layer.
        rows, columns, outputs, samples: of the output; `outputs` are channel blocks.
        inputs: channel blocks that each output channel block reads; 0 without a contraction.
        banded: whether every output block reads inputs of its own.
        vertical, horizontal: windows.
        diagonals: further tensors of the output's shape that are added.
        vectors: constants per channel.
        epilogue: cycles per sum after the products.
        extra: sums per tile and channel block beside the outputs: of the pool's input window.
    """

    name: str
    rows: int
    columns: int
    outputs: int
    samples: int = 1
    inputs: int = 0
    banded: bool = False
    vertical: Window = Window()
    horizontal: Window = Window()
    diagonals: int = 0
    vectors: int = 0
    epilogue: int = 5
    keeps_window: bool = False


def candidates(config: VtaConfig, work: Work, *, extended: bool = False) -> tuple[Tile, ...]:
    """All tiles that fit, the cheapest first.

    Raises:
        UnsupportedError: not even the smallest tile fits.
    """
    step = work.inputs if work.inputs and not work.banded else 1
    axes = (_splits(work.rows), _splits(work.columns), _splits(work.outputs), _splits(step))
    rows, columns, outputs, inputs = (grid.ravel() for grid in np.meshgrid(*axes, indexing="ij"))
    need = _needs(work, rows, columns, outputs, inputs)
    have = capacities(config, extended=extended)
    fits = np.all([need[memory] <= have[memory] for memory in need], axis=0)
    if not fits.any():
        raise UnsupportedError(_too_big(work, need, have))
    chosen = [part[fits] for part in (rows, columns, outputs, inputs)]
    order = np.argsort(_cost(config, work, *chosen), kind="stable")
    return tuple(
        Tile(rows=int(r), columns=int(c), outputs=int(o), inputs=int(i))
        for r, c, o, i in np.stack(chosen, axis=1)[order]
    )


def capacities(config: VtaConfig, *, extended: bool) -> dict[Memory, int]:
    """Elements of a half of each memory; micro-ops of one of the four loops over halves."""
    return {
        Memory.INP: config.reachable_inputs // 2,
        Memory.WGT: config.depth(Memory.WGT) // 2,
        Memory.ACC: config.depth(Memory.ACC) // 2,
        Memory.UOP: config.micro_op_budget(extended=extended) // 4,
    }


def _splits(extent: int) -> Array:
    return np.unique([-(-extent // parts) for parts in range(1, extent + 1)])


def _needs(
    work: Work, rows: Array, columns: Array, outputs: Array, inputs: Array
) -> dict[Memory, Array]:
    window = work.vertical.span(rows) * work.horizontal.span(columns)
    taps = work.vertical.taps * work.horizontal.taps
    area = rows * columns
    if work.keeps_window:
        window = np.minimum(window, work.vertical.span(rows) * work.horizontal.span(columns))
        return {
            Memory.INP: outputs * window,
            Memory.ACC: outputs * (area + window),
            Memory.UOP: outputs * taps,
        }
    streams = np.where(work.banded, outputs, inputs) if work.inputs else 0 * inputs
    return {
        Memory.INP: np.maximum(streams * window, (outputs * area) * (work.diagonals > 0)),
        Memory.WGT: np.maximum(
            (work.inputs > 0) * outputs * inputs * taps, outputs * (work.diagonals > 0)
        ),
        Memory.ACC: np.maximum(outputs * rows, SHORT_LOOP) * columns + outputs * work.vectors,
        Memory.UOP: (work.inputs > 0) * np.maximum(outputs * rows, SHORT_LOOP) * taps + 1,
    }


def _too_big(work: Work, need: dict[Memory, Array], have: dict[Memory, int]) -> str:
    short = [
        f"{memory.name} {int(values.min())} of {have[memory]}"
        for memory, values in need.items()
        if values.min() > have[memory]
    ]
    what = ", ".join(short) or "no combination of sizes"
    return (
        f"VTA layer '{work.name}': its smallest tile does not fit ({what} elements of a half): use "
        "larger buffers, or keep the layer on the CPU."
    )


def _cost(
    config: VtaConfig, work: Work, rows: Array, columns: Array, outputs: Array, inputs: Array
) -> Array:
    """Estimated cycles of the layer."""
    tiles = work.samples * (
        -(-work.rows // rows) * -(-work.columns // columns) * -(-work.outputs // outputs)
    )
    steps = -(-work.inputs // inputs)
    area, taps = rows * columns, work.vertical.taps * work.horizontal.taps
    window = work.vertical.span(rows) * work.horizontal.span(columns)
    streams = np.where(work.banded, outputs, inputs)
    inp, wgt = config.element_bytes(Memory.INP), config.element_bytes(Memory.WGT)
    load = (streams * (window * inp / BUS_BYTES + LATENCY)) + LATENCY
    load = load + outputs * inputs * taps * wgt / BUS_BYTES
    added = work.diagonals + work.keeps_window
    dma = steps * load + added * (outputs * area * inp / BUS_BYTES + 2 * LATENCY)
    loop = np.maximum(outputs * rows, SHORT_LOOP) * columns
    compute = steps * (loop * taps * inputs + PIPELINE)
    compute = compute + outputs * area * (1 + added + work.epilogue) + 8 * PIPELINE
    compute = compute + (work.vectors > 0) * (
        LATENCY + outputs * work.vectors * config.element_bytes(Memory.ACC) / BUS_BYTES
    )
    slow, fast = np.maximum(dma, compute), np.minimum(dma, compute)
    # The first loads and the last store have nothing to hide behind.
    return np.asarray(tiles * (slow + 0.05 * fast) + load + outputs * area * inp / BUS_BYTES)
