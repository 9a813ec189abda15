"""A simulator of VTA in NumPy: the units run under control of the tokens, never in program order.

Memories start with random values, so that nothing depends on what was there before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.backend.vta.config import Memory, VtaConfig
from tvm_quant.backend.vta.isa import (
    Alu,
    AluOp,
    Gemm,
    Instruction,
    Load,
    Loop,
    Opcode,
    Store,
    Transfer,
    disassemble,
)
from tvm_quant.backend.vta.loops import Indices, indices, products
from tvm_quant.backend.vta.streams import interleave
from tvm_quant.errors import ProgramError

Array = npt.NDArray[Any]

EXACT_PRODUCTS = 1024  # of two int8: their sum is at most 2**24, exact in float32


class Simulator:
    """One VTA with its DRAM.

    Args:
        config: sizes.
        dram: uint8 (bytes,); changed in place.
        base: address of its first byte.
        seed: of the initial content of the memories, and of the policy "random".

    Attributes:
        counters: as the profiler of VTA's functional simulator counts: bytes of loads and stores,
            steps of GEMM (without resets) and ALU instructions; an ACC_8BIT load counts those on
            the chip, and those that it moves as "acc_8bit_moved_nbytes".
    """

    def __init__(self, config: VtaConfig, dram: Array, base: int, *, seed: int = 0):
        self.config, self.dram, self.base, self.seed = config, dram, base, seed
        random = np.random.default_rng(seed)
        rows, block = config.batch, config.block
        depth = config.depth
        # Operands of the products are kept as float32; weights transposed, (in, out).
        self._inp = _noise(random, (depth(Memory.INP), rows, block)).astype(np.float32)
        self._wgt = _noise(random, (depth(Memory.WGT), block, block)).astype(np.float32)
        self._acc = _noise(random, (depth(Memory.ACC), rows, block)).astype(np.int32)
        self._uop = np.zeros(depth(Memory.UOP), np.uint32)
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._run: dict[Opcode, Callable[[Any], None]] = {
            Opcode.LOAD: self._load,
            Opcode.STORE: self._store,
            Opcode.GEMM: self._gemm,
            Opcode.ALU: self._alu,
            Opcode.FINISH: lambda _: None,
        }

    def run(self, instructions: Sequence[Instruction], policy: str = "round-robin") -> None:
        """Run a program.

        Raises:
            ProgramError: a deadlock, left-over tokens, an index outside a memory.
        """
        for index in interleave(instructions, policy, seed=self.seed):
            instruction = instructions[index]
            try:
                self._run[instruction.opcode](instruction)
            except ProgramError as error:
                text = f"VTA instruction {index} ({disassemble(instruction)}): {error}"
                raise ProgramError(text) from error

    def _load(self, load: Load) -> None:
        if load.is_nop:
            return
        memory = Memory(load.memory_type)
        rows, columns = load.extent
        values = np.zeros((rows, columns, self.config.element_bytes(memory)), np.uint8)
        inner = values[load.y_pad_0 :, load.x_pad_0 :][: load.y_size, : load.x_size]
        inner[...] = self._rectangle(load)
        target, decode = self._memory(memory)
        _check_end(memory, load.sram_base + rows * columns, len(target))
        elements = decode(values.reshape(rows * columns, -1))
        target[load.sram_base : load.sram_base + rows * columns] = elements
        self._count_load(memory, load.moved)

    def _count_load(self, memory: Memory, moved: int) -> None:
        if memory is Memory.ACC_8BIT:
            self.counters["acc_8bit_moved_nbytes"] += moved * self.config.element_bytes(memory)
            memory = Memory.ACC
        self.counters[f"{memory.name.lower()}_load_nbytes"] += moved * self.config.element_bytes(
            memory
        )

    def _memory(self, memory: Memory) -> tuple[Array, Callable[[Array], Array]]:
        rows, block = self.config.batch, self.config.block
        return {
            Memory.UOP: (self._uop, lambda raw: raw.view(np.uint32).ravel()),
            Memory.WGT: (
                self._wgt,
                lambda raw: raw.view(np.int8).reshape(-1, block, block).transpose(0, 2, 1),
            ),
            Memory.INP: (self._inp, lambda raw: raw.view(np.int8).reshape(-1, rows, block)),
            Memory.ACC: (self._acc, lambda raw: raw.view(np.int32).reshape(-1, rows, block)),
            Memory.ACC_8BIT: (self._acc, lambda raw: raw.view(np.int8).reshape(-1, rows, block)),
        }[memory]

    def _store(self, store: Store) -> None:
        if store.is_nop:
            return
        end = store.sram_base + store.moved
        _check_end(Memory.OUT, end, len(self._acc))
        values = self._acc[store.sram_base : end].astype(np.int8).view(np.uint8)
        self._rectangle(store)[...] = values.reshape(store.y_size, store.x_size, -1)
        self.counters["out_store_nbytes"] += store.moved * self.config.element_bytes(Memory.OUT)

    def _rectangle(self, transfer: Transfer) -> Array:
        """The bytes of a transfer in DRAM, (rows, columns, element), as a view."""
        size = self.config.element_bytes(Memory(transfer.memory_type))
        start = transfer.dram_base * size - self.base
        last = (transfer.y_size - 1) * transfer.x_stride + transfer.x_size
        if start < 0 or start + last * size > len(self.dram):
            raise ProgramError(
                f"bytes {start} to {start + last * size} of the image, expected 0 to "
                f"{len(self.dram)}"
            )
        return np.lib.stride_tricks.as_strided(
            self.dram[start:],
            (transfer.y_size, transfer.x_size, size),
            (transfer.x_stride * size, size, 1),
        )

    def _indices(self, loop: Loop) -> Indices:
        _check_end(Memory.UOP, loop.uop_end, len(self._uop))
        return indices(self.config, loop, self._uop[loop.uop_bgn : loop.uop_end])

    def _gemm(self, gemm: Gemm) -> None:
        found = self._indices(gemm)
        if not len(found.dst):
            return
        _check_end(Memory.ACC, int(found.dst.max()) + 1, len(self._acc))
        if gemm.reset_reg:
            self._acc[found.dst] = 0
            return
        _check_end(Memory.INP, int(found.src.max()) + 1, len(self._inp))
        _check_end(Memory.WGT, int(found.wgt.max()) + 1, len(self._wgt))
        for product in products(found):
            self._multiply(product.src, product.wgt, product.dst)
        self.counters["gemm_counter"] += gemm.steps

    def _multiply(self, src: Array, wgt: Array, dst: Array) -> None:
        rows, block = self.config.batch, self.config.block
        pixels, steps = src.shape
        groups = wgt.shape[1]
        most = max(1, EXACT_PRODUCTS // block)
        for start in range(0, steps, most):
            taken = slice(start, min(start + most, steps))
            inner = (taken.stop - taken.start) * block
            data = self._inp[src[:, taken]].transpose(0, 2, 1, 3).reshape(pixels * rows, inner)
            weight = self._wgt[wgt[taken]].transpose(0, 2, 1, 3).reshape(inner, groups * block)
            sums = (data @ weight).astype(np.int32).reshape(pixels, rows, groups, block)
            self._acc[dst] += sums.transpose(0, 2, 1, 3)

    def _alu(self, alu: Alu) -> None:
        found = self._indices(alu)
        if not len(found.dst):
            return
        last = max(int(found.dst.max()), int(found.src.max()))
        _check_end(Memory.ACC, last + 1, len(self._acc))
        operate = OPERATIONS[AluOp(alu.alu_opcode)]
        acc, imm = self._acc, np.int32(alu.imm)
        self.counters["alu_counter"] += alu.steps
        if found.distinct and (alu.use_imm or not np.intersect1d(found.dst, found.src).size):
            acc[found.dst] = operate(acc[found.dst], imm if alu.use_imm else acc[found.src])
            return
        for dst, src in zip(found.dst, found.src, strict=True):
            acc[dst] = operate(acc[dst], imm if alu.use_imm else acc[src])


COUNTERS = (
    *("inp_load_nbytes", "wgt_load_nbytes", "acc_load_nbytes", "uop_load_nbytes"),
    *("out_store_nbytes", "gemm_counter", "alu_counter"),
)


def _shift_right(values: Array, count: Any) -> Array:
    right, left = np.clip(count, 0, 31), np.clip(-np.asarray(count, np.int64), 0, 31)
    return (values >> right) << left.astype(np.int32)  # type: ignore[no-any-return]


OPERATIONS: dict[AluOp, Callable[[Array, Any], Array]] = {
    AluOp.MIN: np.minimum,
    AluOp.MAX: np.maximum,
    AluOp.ADD: np.add,
    AluOp.SHR: _shift_right,
    AluOp.MUL: np.multiply,
}


def _check_end(memory: Memory, end: int, depth: int) -> None:
    if end > depth:
        raise ProgramError(f"{memory.name} up to {end}, expected at most {depth}")


def _noise(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return random.integers(-128, 128, shape, np.int8)
