"""From a layer to instructions.

Every output tile: the accumulators are cleared, the residual is added (by diagonal weights, then
shifted), one GEMM for each step of input blocks, then bias, shift and clip on the ALU, and a store.
Two halves of each memory take turns, so that loads, products and stores overlap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.backend.vta.codegen.isa import Alu, Instruction, Opcode
from tvm_quant.backend.vta.codegen.program import Builder, Place, Program
from tvm_quant.backend.vta.codegen.tile import REUSE_SLOTS, Problem, Room, Tile, choose, largest
from tvm_quant.backend.vta.codegen.verify import verify
from tvm_quant.backend.vta.config import Memory, VtaConfig
from tvm_quant.backend.vta.layer import Add, Convolution, Dense, Layer, MaxPool, Region, Residual
from tvm_quant.errors import BackendError

Array = npt.NDArray[Any]
LONGEST_SHIFT = 15
WEIGHT_SHIFT = 6
LOWEST = -128


def compile_region(
    region: Region,
    config: VtaConfig,
    *,
    extended: bool = False,
    tiles: Mapping[str, Tile] | None = None,
) -> Program:
    """The program of a region: one stream, with a barrier between layers.

    Args:
        extended: use what only the functional simulator has.
        tiles: those of some contractions by the layer's name; the others are chosen.

    Raises:
        BackendError: a layer or its tile does not fit the chip.
    """
    if config.batch != 1:
        raise BackendError("VTA: LOG_BATCH must be 0: regions are of one row.")
    builder = Builder(config=config, budget=config.micro_op_budget(extended=extended))
    places = {}
    for tensor in region.tensors:
        n, c, h, w = tensor.nchw
        blocks = -(-c // config.block)
        address = builder.reserve(n * blocks * h * w * config.block)
        places[tensor.name] = Place(address=address, shape=tensor.nchw, declared=tensor.shape)
    lowering = _Lowering(builder, places, tiles or {})
    for layer in region.layers:
        builder.label = layer.name
        lowering.layer(layer)
    lowering.finish()
    program = builder.program(places, region.inputs, region.outputs)
    verify(program, region, extended=extended)
    return program


@dataclass
class _Block:
    """A part of an output: one sample, `channels` blocks, a window of the plane."""

    sample: int
    first: int
    blocks: int
    top: int
    left: int
    height: int
    width: int

    @property
    def elements(self) -> int:
        return self.blocks * self.height * self.width


class _Lowering:
    def __init__(self, builder: Builder, places: dict[str, Place], forced: Mapping[str, Tile]):
        self.b = builder
        self.places = places
        self.forced = forced
        config = builder.config
        self.block = config.block
        self.inp_half = config.reachable_inputs // 2
        self.wgt_half = config.depth(Memory.WGT) // 2
        self.acc_half = config.depth(Memory.ACC) // 2
        self.room = Room(
            inp=self.inp_half, wgt=self.wgt_half, acc=self.acc_half, micro_ops=builder.budget // 2
        )
        self.barrier = False  # before the next load
        self.steps: list[Instruction] = []  # what frees the INP/WGT halves, one a step
        self.tiles = 0
        self.first_load: Instruction | None = None

    # Layers --------------------------------------------------------------------

    def layer(self, layer: Layer) -> None:
        """Emit a layer."""
        if isinstance(layer, Add):
            layer = self._as_convolution(layer)
        if isinstance(layer, MaxPool):
            self._pool(layer)
        elif isinstance(layer, Convolution | Dense):
            self._contraction(layer)
        else:
            raise BackendError(f"VTA has no form of {type(layer).__name__} '{layer.name}'.")
        self._drain()

    def finish(self) -> None:
        """End when all stages have."""
        self.b.label = "end"
        self._nop(Memory.INP, Opcode.LOAD, push_next=1, **self._after_barrier())
        self._nop(Memory.UOP, Opcode.LOAD, pop_prev=1)
        self.b.emit(Opcode.FINISH)

    def _as_convolution(self, layer: Add) -> Convolution:
        lhs, rhs, left, right = layer.lhs, layer.rhs, layer.lhs_shift, layer.rhs_shift
        if left > right:
            lhs, rhs, left, right = rhs, lhs, right, left
        common = min(left, int(np.max(layer.shift)) + 4) if left > WEIGHT_SHIFT else 0
        channels = self.places[lhs].shape[1]
        return Convolution(
            name=layer.name,
            output=layer.output,
            data=lhs,
            weight=np.full((channels, 1, 1, 1), 1 << (left - common), np.int8),
            groups=channels,
            residual=Residual(tensor=rhs, shift=right - common),
            shift=int(np.max(layer.shift)) - common,
            low=layer.low,
            high=layer.high,
        )

    def _drain(self) -> None:
        """Wait for the stores of a layer, before the loads of the next."""
        if self.barrier:  # the layer loaded nothing
            self._nop(Memory.INP, Opcode.LOAD, **self._after_barrier())
        for _ in range(min(2, self.tiles)):
            self._nop(Memory.UOP, Opcode.LOAD, pop_next=1)
        self._nop(Memory.UOP, Opcode.LOAD, push_prev=1)
        self.barrier, self.steps, self.tiles = True, [], 0

    def _nop(self, memory: Memory, opcode: Opcode, **flags: int) -> None:
        self.b.emit(opcode, memory_type=memory, **flags)

    def _after_barrier(self) -> dict[str, int]:
        waits = {"pop_next": 1} if self.barrier else {}
        self.barrier = False
        return waits

    # Contractions ----------------------------------------------------------------

    def _contraction(self, layer: Convolution | Dense) -> None:
        plan = _Plan(layer, self.places, self)
        for tile in plan.tiles():
            half = (self.tiles % 2) * self.acc_half
            self._reset(tile, half)
            if layer.residual is not None:
                self._residual(plan, tile, half)
            for blocks in plan.steps(tile):
                self._step(plan, tile, half, blocks)
            self._epilogue(plan, tile, half)

    def _reset(self, tile: _Block, half: int, elements: int | None = None) -> None:
        waits = {"pop_next": 1} if self.tiles >= 2 else {}
        self._loop_gemm([half << 0], elements or tile.elements, reset_reg=1, **waits)

    def _loop_gemm(self, ops: list[int], count: int, **fields: int) -> None:
        begin, end = self.b.micro_ops(ops)
        self.b.emit(
            Opcode.GEMM,
            uop_bgn=begin,
            uop_end=end,
            iter_out=1,
            iter_in=count,
            dst_factor_in=1,
            **fields,
        )

    def _begin_step(self) -> tuple[int, int]:
        """(INP base, WGT base) of the half of this step."""
        half = len(self.steps) % 2
        return half * self.inp_half, half * self.wgt_half

    def _load(self, memory: Memory, first: bool, last: bool, **fields: int) -> None:
        flags = dict(self._after_barrier()) if first else {}
        if first and len(self.steps) >= 2:
            self.steps[-2].fields["push_prev"] = 1
            flags["pop_next"] = 1
        if last:
            flags["push_next"] = 1
        clash = first and len(self.steps) >= 2 and not flags
        assert not clash
        self.b.emit(Opcode.LOAD, memory_type=memory, **fields, **flags)

    def _gemms(self, pieces: list[list[int]], **fields: int) -> None:
        """The products of a step, an instruction for each list of micro-ops."""
        size = len(pieces[0])
        every = [op for ops in pieces for op in ops]
        together = len(every) <= self.b.budget // 4
        for index, ops in enumerate(pieces):
            begin = (
                self.b.micro_ops(every)[0] + index * size if together else self.b.micro_ops(ops)[0]
            )
            waits = {"pop_prev": 1} if index == 0 else {}
            one = self.b.emit(Opcode.GEMM, uop_bgn=begin, uop_end=begin + size, **fields, **waits)
        self.steps.append(one)

    def _residual(self, plan: _Plan, tile: _Block, half: int) -> None:
        """Diagonal weights bring the channels to a common shift, which the ALU does."""
        assert plan.layer.residual is not None
        source = self.places[plan.layer.residual.tensor]
        shifts = plan.residual_shifts(tile)
        level = int(shifts.max())
        while True:
            below = np.where((shifts <= level) & (shifts >= 0), shifts, -1)
            base = max(level - WEIGHT_SHIFT, 0)
            here = below >= base
            rest = below[(below >= 0) & ~here]
            diagonal = np.where(here, 1 << (shifts - base).clip(0, WEIGHT_SHIFT), 0)
            self._add_copy(tile, half, source, diagonal.astype("int8"))
            following = int(rest.max()) if rest.size else 0
            # everything so far is in units of 2**base; what follows in those of a lower one
            if not rest.size:
                self._shift_left(tile, half, base)
                return
            lower = max(following - WEIGHT_SHIFT, 0)
            self._shift_left(tile, half, base - lower)
            shifts = np.where(here, -1, shifts)
            level = following

    def _shift_left(self, tile: _Block, half: int, bits: int) -> None:
        while bits > 0:
            now = min(bits, LONGEST_SHIFT)
            self._alu(tile, half, Alu.SHR, imm=-now)
            bits -= now

    def _add_copy(self, tile: _Block, half: int, source: Place, diagonal: Array) -> None:
        """ACC += source * diagonal, int8 (blocks, lanes)."""
        inp, wgt = self._begin_step()
        elements = np.zeros((tile.blocks, self.block, self.block), np.int8)
        lanes = np.arange(self.block)
        elements[:, lanes, lanes] = diagonal
        for index in range(tile.blocks):
            self._load(
                Memory.INP,
                index == 0,
                False,
                sram_base=inp + index * tile.height * tile.width,
                **self._window(source, tile.sample, tile.first + index, tile),
            )
        self._load(Memory.WGT, False, True, **self._constant(elements, wgt))
        plane = tile.height * tile.width
        ops = [_uop(self.b.config, half, inp, wgt)]
        self._gemms(
            [ops],
            iter_out=tile.blocks,
            iter_in=plane,
            dst_factor_out=plane,
            dst_factor_in=1,
            src_factor_out=plane,
            src_factor_in=1,
            wgt_factor_out=1,
        )

    def _window(self, place: Place, sample: int, block: int, tile: _Block) -> dict[str, int]:
        _n, channels, height, width = place.shape
        plane = (sample * -(-channels // self.block) + block) * height
        start = place.address // self.block + (plane + tile.top) * width + tile.left
        return {
            "dram_base": start,
            "y_size": tile.height,
            "x_size": tile.width,
            "x_stride": width,
        }

    def _constant(self, elements: Array, base: int) -> dict[str, int]:
        """A load of WGT elements."""
        address = self.b.constant(elements)
        count = len(elements)
        return {
            "sram_base": base,
            "dram_base": address // self.b.config.element_bytes(Memory.WGT),
            "y_size": 1,
            "x_size": count,
            "x_stride": count,
        }

    def _step(self, plan: _Plan, tile: _Block, half: int, blocks: list[int]) -> None:
        inp, wgt = self._begin_step()
        window = plan.input_window(tile)
        size = window.rows * window.columns
        for index, block in enumerate(blocks):
            self._load(
                Memory.INP,
                index == 0,
                False,
                sram_base=inp + index * size,
                **window.load(plan.data, tile.sample, block, self.block),
            )
        self._load(Memory.WGT, False, True, **plan.weights(tile, blocks, wgt))
        taps = plan.kernel[0] * plan.kernel[1]
        count = len(blocks)
        pieces = [
            [
                _uop(
                    self.b.config,
                    half + (co * tile.height + row) * tile.width,
                    inp
                    + (row * plan.strides[0] + dy * plan.dilation[0]) * window.columns
                    + dx * plan.dilation[1],
                    wgt + co * count * taps + dy * plan.kernel[1] + dx,
                )
                for co in range(tile.blocks)
                for row in range(tile.height)
            ]
            for dy, dx in product(range(plan.kernel[0]), range(plan.kernel[1]))
        ]
        loops = {"iter_in": tile.width, "dst_factor_in": 1, "src_factor_in": plan.strides[1]}
        if tile.blocks * tile.height > REUSE_SLOTS:
            pieces = [[op for ops in pieces for op in ops]]
        if tile.elements > REUSE_SLOTS:
            outer = {"iter_out": count, "src_factor_out": size, "wgt_factor_out": taps}
        else:
            shift = _uop(self.b.config, 0, size, taps)
            pieces = [[op + ci * shift for op in ops] for ci in range(count) for ops in pieces]
            outer = {"iter_out": 1}
        self._gemms(pieces, **outer, **loops)

    def _epilogue(self, plan: _Plan, tile: _Block, half: int) -> None:
        bias, counts, left = plan.epilogue(tile)
        table = half + tile.elements
        if bias.any():
            self._vector(bias, table)
            self._alu(tile, half, Alu.ADD, source=table)
        self._shift_left(tile, half, left)
        for part in counts:
            if (part == part.flat[0]).all():
                if part.flat[0]:
                    self._alu(tile, half, Alu.SHR, imm=int(part.flat[0]))
                continue
            self._vector(part, table)
            self._alu(tile, half, Alu.SHR, source=table)
        self._alu(tile, half, Alu.MIN, imm=plan.layer.high)
        last = self._alu(tile, half, Alu.MAX, imm=plan.layer.low)
        self._store(plan.output, tile, half, last)

    def _vector(self, values: Array, base: int) -> None:
        """Load ACC elements, int32 (blocks, lanes)."""
        address = self.b.constant(values.astype("int32"))
        self.b.emit(
            Opcode.LOAD,
            memory_type=Memory.ACC,
            sram_base=base,
            dram_base=address // self.b.config.element_bytes(Memory.ACC),
            y_size=1,
            x_size=len(values),
            x_stride=len(values),
        )

    def _alu(
        self,
        tile: _Block,
        half: int,
        operation: Alu,
        *,
        imm: int | None = None,
        source: int = 0,
    ) -> Instruction:
        plane = tile.height * tile.width
        begin, end = self.b.micro_ops(
            [_uop(self.b.config, half, half if imm is not None else source)]
        )
        fields = {"use_imm": 1, "imm": imm} if imm is not None else {}
        factors = (plane, 1) if imm is not None else (1, 0)
        return self.b.emit(
            Opcode.ALU,
            uop_bgn=begin,
            uop_end=end,
            iter_out=tile.blocks,
            iter_in=plane,
            dst_factor_out=plane,
            dst_factor_in=1,
            src_factor_out=factors[0],
            src_factor_in=factors[1],
            alu_opcode=operation,
            **fields,
        )

    def _store(self, output: Place, tile: _Block, half: int, last: Instruction) -> None:
        last.fields["push_next"] = 1
        plane = tile.height * tile.width
        for index in range(tile.blocks):
            flags = {}
            if index == 0:
                flags["pop_prev"] = 1
            if index == tile.blocks - 1:
                flags["push_prev"] = 1
            self.b.emit(
                Opcode.STORE,
                memory_type=Memory.OUT,
                sram_base=half + index * plane,
                **self._window(output, tile.sample, tile.first + index, tile),
                **flags,
            )
        self.tiles += 1

    # Pools -----------------------------------------------------------------------

    def _pool(self, layer: MaxPool) -> None:
        data, output = self.places[layer.data], self.places[layer.output]
        unit = np.eye(self.block, dtype=np.int8)[None]
        for tile in self._pool_tiles(layer, output):
            window = _Window.of(tile, layer.strides, layer.window, (1, 1), layer.padding, data)
            half = (self.tiles % 2) * self.acc_half
            size = window.rows * window.columns
            inside = half + tile.elements
            self._reset(tile, half, tile.elements + size)
            whole = _Block(0, 0, 1, 0, 0, 1, tile.elements + size)
            self._alu(whole, half, Alu.ADD, imm=LOWEST)
            if window.height:
                self._fill(window, data, tile, inside, unit)
            last = None
            for dy, dx in product(range(layer.window[0]), range(layer.window[1])):
                begin, end = self.b.micro_ops(
                    [_uop(self.b.config, half, inside + dy * window.columns + dx)]
                )
                last = self.b.emit(
                    Opcode.ALU,
                    uop_bgn=begin,
                    uop_end=end,
                    iter_out=tile.height,
                    iter_in=tile.width,
                    dst_factor_out=tile.width,
                    dst_factor_in=1,
                    src_factor_out=layer.strides[0] * window.columns,
                    src_factor_in=layer.strides[1],
                    alu_opcode=Alu.MAX,
                )
            assert last is not None
            self._store(output, tile, half, last)

    def _fill(self, window: _Window, data: Place, tile: _Block, inside: int, unit: Array) -> None:
        """Bring what is no padding into ACC: from -128 to 0, then to the values."""
        inp, wgt = self._begin_step()
        self._load(
            Memory.INP,
            True,
            False,
            sram_base=inp,
            **window.bare(data, tile.sample, tile.first, self.block),
        )
        self._load(Memory.WGT, False, True, **self._constant(unit, wgt))
        start = inside + window.top * window.columns + window.left
        loops = {
            "iter_out": window.height,
            "iter_in": window.width,
            "dst_factor_out": window.columns,
            "dst_factor_in": 1,
            "src_factor_in": 1,
        }
        begin, end = self.b.micro_ops([_uop(self.b.config, start, start)])
        self.b.emit(
            Opcode.ALU,
            uop_bgn=begin,
            uop_end=end,
            **loops,
            src_factor_out=window.columns,
            alu_opcode=Alu.ADD,
            use_imm=1,
            imm=-LOWEST,
        )
        ops = [_uop(self.b.config, start, inp, wgt)]
        self._gemms([ops], **loops, src_factor_out=window.width)

    def _pool_tiles(self, layer: MaxPool, output: Place) -> list[_Block]:
        _n, _c, height, width = output.shape

        def fits(rows: int, columns: int) -> bool:
            read = ((rows - 1) * layer.strides[0] + layer.window[0]) * (
                (columns - 1) * layer.strides[1] + layer.window[1]
            )
            return rows * columns + read <= min(self.acc_half, self.inp_half)

        rows, columns = largest((height, width), fits)
        if not rows:
            raise BackendError(
                f"VTA: layer '{layer.name}' does not fit the chip: its window of {layer.window} "
                f"needs more than half of its memories, {self.room}."
            )
        return _blocks(output, 1, rows, columns, self.block)


@dataclass
class _Window:
    """What a tile reads of a plane: `rows` x `columns` with padding, part of it real.

    `height` and `width` are 0 where nothing is real: not every VTA loads padding alone.
    """

    rows: int
    columns: int
    first_row: int
    first_column: int
    top: int
    left: int
    height: int
    width: int

    @classmethod
    def of(
        cls,
        tile: _Block,
        strides: tuple[int, int],
        kernel: tuple[int, int],
        dilation: tuple[int, int],
        padding: tuple[int, int, int, int],
        data: Place,
    ) -> _Window:
        starts, extents, befores, sizes = [], [], [], []
        for axis, (start, count) in enumerate(((tile.top, tile.height), (tile.left, tile.width))):
            extent = (count - 1) * strides[axis] + (kernel[axis] - 1) * dilation[axis] + 1
            first = start * strides[axis] - padding[axis]
            before = min(max(-first, 0), extent)
            limit = data.shape[2 + axis]
            size = min(first + extent, limit) - max(first, 0)
            starts.append(max(first, 0))
            extents.append(extent)
            befores.append(before)
            sizes.append(size)
        if min(sizes) <= 0:  # nothing but padding
            sizes = [0, 0]
        return cls(extents[0], extents[1], *starts, *befores, *sizes)

    def load(self, place: Place, sample: int, block: int, lanes: int) -> dict[str, int]:
        """Fields of a padded load."""
        return {
            **self.bare(place, sample, block, lanes),
            "y_pad_0": self.top,
            "y_pad_1": self.rows - self.top - self.height,
            "x_pad_0": self.left,
            "x_pad_1": self.columns - self.left - self.width,
        }

    def bare(self, place: Place, sample: int, block: int, lanes: int) -> dict[str, int]:
        """Fields of a load without padding."""
        _n, channels, height, width = place.shape
        plane = (sample * -(-channels // lanes) + block) * height
        return {
            "dram_base": place.address // lanes
            + (plane + self.first_row) * width
            + self.first_column,
            "y_size": self.height,
            "x_size": self.width,
            "x_stride": width,
        }


class _Plan:
    """A contraction with channels in blocks, and its tiles."""

    def __init__(self, layer: Convolution | Dense, places: dict[str, Place], lowering: _Lowering):
        self.layer = layer
        self.lowering = lowering
        self.data, self.output = places[layer.data], places[layer.output]
        lanes = lowering.block
        self.lanes = lanes
        self.strides, self.padding = (1, 1), (0, 0, 0, 0)
        self.dilation, groups = (1, 1), 1
        if isinstance(layer, Convolution):
            self.strides, self.padding = layer.strides, layer.padding
            self.dilation, groups = layer.dilation, layer.groups
        self.packed = _packed(layer, groups, self.data.shape[1], lanes)
        self.kernel = (self.packed.shape[2], self.packed.shape[3])
        self.dense = groups == 1
        outputs, inputs = self.packed.shape[:2]
        used: Array = np.any(self.packed.reshape(outputs, inputs, -1), axis=2) | self.dense
        self.reads = [np.flatnonzero(row).tolist() or [0] for row in used]
        self.tile = self._tile(lowering.forced.get(layer.name))

    def _tile(self, forced: Tile | None) -> Tile:
        low, outputs = self.lowering, self.packed.shape[0]
        problem = Problem(
            plane=self.output.shape[2:],
            data=self.data.shape[2:],
            samples=self.output.shape[0],
            outputs=outputs,
            inputs=max(map(len, self.reads)),
            shared=self.dense,
            kernel=self.kernel,
            strides=self.strides,
            dilation=self.dilation,
            residual=self.layer.residual is not None,
        )
        tile = forced or choose(problem, low.room)
        if tile is None or not problem.fits(tile, low.room):
            seen = f" in a tile of {tile}" if forced else ""
            raise BackendError(
                f"VTA: layer '{self.layer.name}' does not fit the chip{seen}: half of its memories "
                f"is {low.room}."
            )
        return tile

    def tiles(self) -> list[_Block]:
        """In an order that keeps the weights' blocks together."""
        rows, columns, tco, _ = self.tile
        return _blocks(self.output, tco, rows, columns, self.lanes)

    def steps(self, tile: _Block) -> list[list[int]]:
        """Input blocks of each step: none where a tile reads nothing but padding, zeros."""
        if not self.input_window(tile).height:
            return []
        reads = self.reads[tile.first]
        tci = self.tile[3]
        return [reads[start : start + tci] for start in range(0, len(reads), tci)]

    def input_window(self, tile: _Block) -> _Window:
        """What a tile reads of each input plane."""
        return _Window.of(tile, self.strides, self.kernel, self.dilation, self.padding, self.data)

    def weights(self, tile: _Block, blocks: list[int], base: int) -> dict[str, int]:
        """A load of the weights of a step: [co][ci][dy][dx]."""
        part = self.packed[tile.first : tile.first + tile.blocks][:, blocks]
        return self.lowering._constant(part.reshape(-1, self.lanes, self.lanes), base)

    def residual_shifts(self, tile: _Block) -> Array:
        """(blocks, lanes)."""
        assert self.layer.residual is not None
        shifts = self.layer.residual.shifts(self.layer.out_channels)
        return self._lanes(shifts, tile, fill=int(shifts.max()))

    def epilogue(self, tile: _Block) -> tuple[Array, list[Array], int]:
        """(bias with rounding, shifts to the right one after the other, shift to the left)."""
        shifts = self.layer.shifts(self.layer.out_channels)
        shift = self._lanes(shifts, tile, fill=int(shifts[-1]))
        bias = self._lanes(self.layer.biases, tile, fill=0).astype("int64")
        bias = bias + np.where(shift > 0, 1 << (shift - 1).clip(0).astype("int64"), 0)
        left = max(int(-shift.min()), 0)
        rest = shift + left
        parts = []
        while rest.any():
            part = np.minimum(rest, LONGEST_SHIFT)
            parts.append(part)
            rest = rest - part
        return bias, parts, left

    def _lanes(self, values: Array, tile: _Block, fill: int) -> Array:
        total = self.packed.shape[0] * self.lanes
        padded = np.full(total, fill, np.int64)
        padded[: len(values)] = values
        blocks = padded.reshape(-1, self.lanes)
        return blocks[tile.first : tile.first + tile.blocks]


def _packed(layer: Convolution | Dense, groups: int, channels: int, lanes: int) -> Array:
    """Weights as int8 (O / lanes, I / lanes, KH, KW, lanes out, lanes in).

    Groups stand on the diagonal, zeros beside them.
    """
    kernel = layer.kernel
    outputs, per_group, kh, kw = kernel.shape
    full = np.zeros((-(-outputs // lanes) * lanes, -(-channels // lanes) * lanes, kh, kw), np.int8)
    each = outputs // groups
    for group in range(groups):
        rows = slice(group * each, (group + 1) * each)
        full[rows, group * per_group : (group + 1) * per_group] = kernel[rows]
    split = full.reshape(len(full) // lanes, lanes, -1, lanes, kh, kw)
    return np.ascontiguousarray(split.transpose(0, 2, 4, 5, 1, 3))


def _blocks(output: Place, tco: int, rows: int, columns: int, lanes: int) -> list[_Block]:
    samples, channels, height, width = output.shape
    count = -(-channels // lanes)
    return [
        _Block(n, co, min(tco, count - co), y, x, min(rows, height - y), min(columns, width - x))
        for n in range(samples)
        for co in range(0, count, tco)
        for y in range(0, height, rows)
        for x in range(0, width, columns)
    ]


def _uop(config: VtaConfig, dst: int, src: int, wgt: int = 0) -> int:
    acc = config.index_bits(Memory.ACC)
    return dst | src << acc | wgt << 2 * acc
