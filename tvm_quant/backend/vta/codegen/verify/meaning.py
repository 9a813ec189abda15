"""Check that each stored element is what its layer says.

The program runs on one number an element in place of its lanes. With fixed random vectors r of
input lanes and u of output lanes, inputs are s * r for a random s an element; a weight matrix W
counts as the number u W r, and a sum a as u a. All of it is linear, modulo 2**64, until the shift
to the right; a shift, the bounds of a clip and a maximum are kept beside the number. The layer
gives the number, shift and bounds that each stored element must have. A wrong index, weight, bias
or padding gives another number, up to a chance of about 2**-60.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.backend.vta.codegen.isa import Alu, Instruction, Opcode
from tvm_quant.backend.vta.codegen.program import BASE, Program
from tvm_quant.backend.vta.codegen.verify.expected import Expected, Projection, expectations
from tvm_quant.backend.vta.codegen.verify.fault import fault
from tvm_quant.backend.vta.config import Memory
from tvm_quant.backend.vta.layer import Region
from tvm_quant.errors import BackendError

Array = npt.NDArray[Any]

LOWEST, HIGHEST = -(2**31), 2**31 - 1  # bounds of what is not clipped
MOST_COUNT = 15  # of a shift by an operand
# what has been done to an element of ACC
UNKNOWN, SUM, SHIFTED, CLIPPED, MAXIMUM = range(5)


def check_meaning(program: Program, region: Region, sequence: Sequence[int]) -> None:
    """Run a program that `check_order` accepted on numbers.

    Args:
        sequence: an order of its instructions that its tokens allow.

    Raises:
        BackendError: an instruction reads or writes a wrong part of DRAM, or does to a sum what no
            layer does; a stored element is not what its layer says; a part of a tensor is never
            stored; a sum does not fit int32.
    """
    machine = _Numbers(program, region)
    at = 0
    try:
        for at in sequence:
            machine.execute(program.instructions[at])
    except _FaultError as error:
        raise fault(program, at, str(error)) from error
    machine.check_complete()


class _FaultError(Exception):
    """What is wrong with the instruction at hand."""


class _Numbers:
    def __init__(self, program: Program, region: Region):
        self.program, self.config = program, program.config
        lanes, depth = self.config.block, self.config.depth
        self.projection = Projection(region, lanes)
        columns = self.projection.columns
        units = len(program.image) // lanes
        self.values = np.random.default_rng(1).integers(0, 2**64, units, np.uint64)
        self.known = np.zeros(units, bool)  # inputs, and what has been stored
        self.owner = np.full(units, -1)  # which tensor a unit is of; constants have none
        self.names = list(program.tensors)
        self.start = {}
        for index, (name, place) in enumerate(program.tensors.items()):
            n, c, h, w = place.shape
            first, count = (place.address - BASE) // lanes, n * -(-c // lanes) * h * w
            self.start[name] = first
            self.owner[first : first + count] = index
            self.known[first : first + count] = name in region.inputs
        self.layers = {layer.name: layer for layer in region.layers}
        self.expected = expectations(region, self.projection, self._tensor)
        self.micro_ops = np.zeros(depth(Memory.UOP), np.int64)
        self.inp = np.zeros(depth(Memory.INP), np.uint64)
        self.wgt = np.zeros((columns, depth(Memory.WGT)), np.uint64)
        self.acc = np.zeros((columns, depth(Memory.ACC)), np.uint64)
        self.shift = np.zeros((columns, depth(Memory.ACC)), np.uint64)
        self.count = np.zeros(depth(Memory.ACC), bool)  # shifts that an operand may hold
        self.low = np.full(depth(Memory.ACC), LOWEST)
        self.high = np.full(depth(Memory.ACC), HIGHEST)
        self.state = np.full(depth(Memory.ACC), UNKNOWN)
        self.computed = np.zeros(depth(Memory.ACC), bool)  # by a product or the ALU

    def _tensor(self, name: str) -> Array:
        n, c, h, w = self.program.tensors[name].shape
        blocks = -(-c // self.config.block)
        first = self.start[name]
        return self.values[first : first + n * blocks * h * w].reshape(n, blocks, h, w)

    def execute(self, one: Instruction) -> None:
        """Do what an instruction does, to numbers."""
        if one.opcode in (Opcode.LOAD, Opcode.STORE):
            if one["x_size"]:
                self._store(one) if one.opcode is Opcode.STORE else self._load(one)
        elif one.opcode is Opcode.GEMM:
            self._gemm(one)
        elif one.opcode is Opcode.ALU:
            self._alu(one)

    def check_complete(self) -> None:
        """Raise where a tensor is not stored as a whole."""
        missing = self.owner[(self.owner >= 0) & ~self.known]
        if missing.size:
            name = self.names[int(missing[0])]
            raise BackendError(
                f"VTA program: {missing.size} elements of tensor '{name}' are never stored."
            )

    # Moves -----------------------------------------------------------------------------

    def _load(self, one: Instruction) -> None:
        memory = Memory(one["memory_type"])
        rows = np.arange(one["y_size"])[:, None] * one["x_stride"]
        read = one["dram_base"] + rows + np.arange(one["x_size"])
        pads = (one["y_pad_0"], one["y_pad_1"]), (one["x_pad_0"], one["x_pad_1"])
        real = np.pad(np.ones(read.shape, bool), pads).reshape(-1)
        into = one["sram_base"] + np.arange(real.size)
        if memory is Memory.INP:
            self.inp[into] = 0
            self.inp[into[real]] = self._activations(read.reshape(-1))
            return
        data = self._constants(memory, read.reshape(-1))
        if memory is Memory.UOP:
            self.micro_ops[into] = data.view(np.uint32).reshape(-1)
        elif memory is Memory.WGT:
            self.wgt[:, into] = self.projection.of_weights(one.label, data.view(np.int8))
        else:
            self._load_sums(one, data, memory, into, real)

    def _load_sums(
        self, one: Instruction, data: Array, memory: Memory, into: Array, real: Array
    ) -> None:
        values = data.view(np.int32 if memory is Memory.ACC else np.int8).astype(np.int64)
        self._clear(into)
        self.acc[:, into[real]] = self.projection.of_sums(one.label, values)
        counts = (values >= 0).all(axis=1) & (values <= MOST_COUNT).all(axis=1)
        self.count[into] = True
        self.count[into[real]] = counts

    def _clear(self, into: Array) -> None:
        self.acc[:, into] = 0
        self.shift[:, into] = 0
        self.low[into], self.high[into] = LOWEST, HIGHEST
        self.state[into], self.computed[into], self.count[into] = SUM, False, False

    def _activations(self, elements: Array) -> Array:
        units = elements - BASE // self.config.block
        if (self.owner[units] < 0).any():
            raise _FaultError("reads constants as inputs")
        if not self.known[units].all():
            name = self.names[int(self.owner[units[~self.known[units]][0]])]
            raise _FaultError(f"reads tensor '{name}' before it is stored")
        return np.asarray(self.values[units])

    def _constants(self, memory: Memory, elements: Array) -> Array:
        size = self.config.element_bytes(memory)
        start = elements * size - BASE
        ends = np.concatenate([start, start + size - 1]) // self.config.block
        if (self.owner[ends] >= 0).any():
            name = self.names[int(self.owner[ends].max())]
            raise _FaultError(f"reads tensor '{name}' as constants")
        return np.ascontiguousarray(self.program.image.reshape(-1, size)[start // size])

    def _store(self, one: Instruction) -> None:
        layer = self.layers.get(one.label)
        if layer is None:
            raise _FaultError("stores, but is of no layer")
        rows = np.arange(one["y_size"])[:, None] * one["x_stride"]
        units = (one["dram_base"] + rows + np.arange(one["x_size"])).reshape(-1)
        units = units - BASE // self.config.block
        if (self.owner[units] != self.names.index(layer.output)).any():
            raise _FaultError(f"writes beside tensor '{layer.output}'")
        found = one["sram_base"] + np.arange(units.size)
        if not self.computed[found].all():
            raise _FaultError(
                f"stores elements of '{layer.output}' that were only loaded or cleared"
            )
        wrong = self._differs(self.expected(layer), units - self.start[layer.output], found)
        if wrong:
            raise _FaultError(f"stores to tensor '{layer.output}' what has {wrong}")
        self.known[units] = True

    def _differs(self, expected: Expected, units: Array, found: Array) -> str:
        """In what stored elements are not as they should be; "" if in nothing."""
        if expected.maximum:
            good = self.state[found] == MAXIMUM
            right = self._column(expected, units, self.acc[:, found]) == expected.sums[units]
            return "" if (good & right).all() else "other elements in its maxima"
        if (self.state[found] != CLIPPED).any():
            return "not been clipped"
        if (self.low[found] != expected.low).any() or (self.high[found] != expected.high).any():
            return f"other bounds than {expected.low} and {expected.high}"
        sums = self._column(expected, units, self.acc[:, found])
        shift = self._column(expected, units, self.shift[:, found])
        return expected.differs(units, sums, shift)

    def _column(self, expected: Expected, units: Array, both: Array) -> Array:
        return np.asarray(np.where(expected.last[units], both[-1], both[0]))

    # Loops -----------------------------------------------------------------------------

    def _indices(self, one: Instruction, name: str) -> Array:
        """(iter_out, iter_in, micro-ops)."""
        bits = self.config.index_bits(Memory.ACC)
        place = {"dst": 0, "src": bits, "wgt": 2 * bits}[name]
        codes = self.micro_ops[one["uop_bgn"] : one["uop_end"]] >> place
        base = codes if name == "wgt" else codes & ((1 << bits) - 1)
        outer = np.arange(one["iter_out"]) * one[f"{name}_factor_out"]
        inner = np.arange(one["iter_in"]) * one[f"{name}_factor_in"]
        return np.asarray(outer[:, None, None] + inner[:, None] + base)

    def _gemm(self, one: Instruction) -> None:
        dst = self._indices(one, "dst")
        if one["reset_reg"]:
            self._clear(dst.reshape(-1))
            return
        self._check_distance(one, dst)
        self._need(dst, SUM)
        src, wgt = self._indices(one, "src"), self._indices(one, "wgt")
        into = dst if one["dst_factor_out"] else dst[:1]  # the outer loop adds to the same
        for acc, weights in zip(self.acc, self.wgt, strict=True):
            products = self.inp[src] * weights[wgt]
            if into is not dst:
                products = products.sum(axis=0, dtype=np.uint64)
            np.add.at(acc, into.reshape(-1), products.reshape(-1))
        self._write(dst)

    def _check_distance(self, one: Instruction, dst: Array) -> None:
        """A sum is used again after three slots at the earliest: pipelines do not forward it."""
        flat = dst.reshape(-1)
        for distance in (1, 2):
            if (flat[distance:] == flat[:-distance]).any():
                raise _FaultError(f"writes an element of ACC twice within {distance + 1} slots")

    def _need(self, elements: Array, *states: int) -> None:
        if not np.isin(self.state[elements], states).all():
            raise _FaultError("does to a sum, after its shift, clip or maximum, what no layer does")

    def _write(self, elements: Array) -> None:
        self.computed[elements], self.count[elements] = True, False

    def _alu(self, one: Instruction) -> None:
        dst, src = (self._indices(one, name).reshape(-1) for name in ("dst", "src"))
        operation = Alu(one["alu_opcode"])
        if one["use_imm"]:
            if (dst != src).any():
                raise _FaultError("has another source than destination beside an immediate")
            self._with_immediate(one, operation, dst)
        else:
            if np.isin(src, dst).any():
                raise _FaultError("reads elements that it writes")
            self._with_operand(operation, dst, src)
        self._write(dst)

    def _with_immediate(self, one: Instruction, operation: Alu, dst: Array) -> None:
        imm = one["imm"]
        ones = self.projection.ones(one.label)
        if operation is Alu.ADD:
            self._need(dst, SUM)
            for acc, unit in zip(self.acc, ones, strict=True):
                np.add.at(acc, dst, _times(imm, unit))
        elif operation is Alu.SHR and imm < 0:
            self._need(dst, SUM)
            for acc in self.acc:
                np.multiply.at(acc, dst, np.uint64(1 << -imm))
        elif operation is Alu.SHR:
            self._need(dst, SUM, SHIFTED)
            for shift, unit in zip(self.shift, ones, strict=True):
                np.add.at(shift, dst, _times(imm, unit))
            self.state[dst] = SHIFTED
        elif operation in (Alu.MIN, Alu.MAX):
            self._need(dst, SUM, SHIFTED, CLIPPED)
            bound = np.minimum if operation is Alu.MIN else np.maximum
            self.low[dst], self.high[dst] = bound(self.low[dst], imm), bound(self.high[dst], imm)
            self.state[dst] = CLIPPED
        else:
            raise _FaultError(f"{operation.name} by an immediate, which no layer has")

    def _with_operand(self, operation: Alu, dst: Array, src: Array) -> None:
        self._need(src, SUM)
        if operation is Alu.ADD:
            self._need(dst, SUM)
            for acc in self.acc:
                np.add.at(acc, dst, acc[src])
        elif operation is Alu.SHR:
            self._need(dst, SUM, SHIFTED)
            if not self.count[src].all():
                raise _FaultError(f"shifts by an operand that is not 0 to {MOST_COUNT}")
            for shift, acc in zip(self.shift, self.acc, strict=True):
                np.add.at(shift, dst, acc[src])
            self.state[dst] = SHIFTED
        elif operation is Alu.MAX:
            self._need(dst, SUM, MAXIMUM)
            for acc in self.acc:
                np.maximum.at(acc, dst, acc[src])
            self.state[dst] = MAXIMUM
        else:
            raise _FaultError(f"{operation.name} by an operand, which no layer has")


def _times(count: int, unit: Any) -> Any:
    """Modulo 2**64."""
    return np.uint64(count * int(unit) % 2**64)
