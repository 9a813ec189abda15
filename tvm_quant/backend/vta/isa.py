"""Instructions and micro-ops of VTA: one table of fields, and what reads and writes it.

An instruction has 128 bits in two little-endian words; no field crosses a word. The widths of its
indices follow from the sizes of the buffers.

Source: apache/tvm-vta, include/vta/hw_spec.h and src/sim/sim_driver.cc.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields
from enum import Enum, IntEnum
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tvm_quant.backend.vta.config import LOOP_BITS, WORD_BITS, Memory, VtaConfig
from tvm_quant.errors import ProgramError

Array = npt.NDArray[Any]

INSTRUCTION_BYTES = 16


class Opcode(IntEnum):
    """What an instruction does."""

    LOAD = 0
    STORE = 1
    GEMM = 2
    FINISH = 3
    ALU = 4


class AluOp(IntEnum):
    """acc[dst] = op(acc[dst], immediate or acc[src]), lane by lane."""

    MIN = 0
    MAX = 1
    ADD = 2
    SHR = 3  # arithmetic; a negative count shifts left
    MUL = 4  # not in all hardware


class Stage(IntEnum):
    """The three units; each runs its instructions in order. Neighbours exchange tokens."""

    LOAD = 0
    COMPUTE = 1
    STORE = 2


class Token(Enum):
    """A queue of tokens: the stage that pushes, and the stage that pops.

    LOADED says that data is on chip, CONSUMED that INP and WGT may be overwritten, COMPUTED that
    OUT is final, STORED that ACC may be overwritten and that DRAM is written.
    """

    LOADED = (Stage.LOAD, Stage.COMPUTE)
    CONSUMED = (Stage.COMPUTE, Stage.LOAD)
    COMPUTED = (Stage.COMPUTE, Stage.STORE)
    STORED = (Stage.STORE, Stage.COMPUTE)

    @property
    def source(self) -> Stage:
        """The stage that pushes."""
        return self.value[0]

    @property
    def target(self) -> Stage:
        """The stage that pops."""
        return self.value[1]

    @property
    def push_flag(self) -> str:
        """Field of an instruction of the source."""
        return "push_next" if self.target > self.source else "push_prev"

    @property
    def pop_flag(self) -> str:
        """Field of an instruction of the target."""
        return "pop_prev" if self.source < self.target else "pop_next"


PUSHES = {stage: tuple(token for token in Token if token.source is stage) for stage in Stage}
POPS = {stage: tuple(token for token in Token if token.target is stage) for stage in Stage}


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """What all instructions have: which tokens they wait for and leave."""

    pop_prev: int = 0
    pop_next: int = 0
    push_prev: int = 0
    push_next: int = 0

    opcode: ClassVar[Opcode]

    @property
    def stage(self) -> Stage:
        """The unit that runs it."""
        return Stage.COMPUTE

    @property
    def pops(self) -> tuple[Token, ...]:
        """Tokens that it takes before it runs."""
        return tuple(token for token in POPS[self.stage] if getattr(self, token.pop_flag))

    @property
    def pushes(self) -> tuple[Token, ...]:
        """Tokens that it leaves after it ran."""
        return tuple(token for token in PUSHES[self.stage] if getattr(self, token.push_flag))


@dataclass(frozen=True, kw_only=True)
class Transfer(Instruction):
    """A rectangle of elements between DRAM and SRAM: `y_size` rows of `x_size` elements.

    Attributes:
        memory_type: a `Memory`.
        sram_base: index of the first element on chip, where rows lie one after the other.
        dram_base: address in DRAM in elements of the memory.
        x_stride: elements from a row in DRAM to the next.
        y_pad_0, y_pad_1, x_pad_0, x_pad_1: zeros above, below, left and right of it on chip.
    """

    memory_type: int
    sram_base: int = 0
    dram_base: int = 0
    y_size: int = 0
    x_size: int = 0
    x_stride: int = 0
    y_pad_0: int = 0
    y_pad_1: int = 0
    x_pad_0: int = 0
    x_pad_1: int = 0

    @property
    def is_nop(self) -> bool:
        """Whether it moves nothing and only handles tokens."""
        return self.x_size == 0

    @property
    def moved(self) -> int:
        """Elements that cross the bus."""
        return self.x_size * self.y_size

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns on chip, padding included."""
        if self.is_nop:
            return 0, 0
        rows = self.y_pad_0 + self.y_size + self.y_pad_1
        return rows, self.x_pad_0 + self.x_size + self.x_pad_1


@dataclass(frozen=True, kw_only=True)
class Load(Transfer):
    """DRAM to SRAM."""

    opcode: ClassVar[Opcode] = Opcode.LOAD

    @property
    def stage(self) -> Stage:
        """INP and WGT have a unit of their own; the others are loaded in between the sums."""
        return Stage.LOAD if self.memory_type in (Memory.INP, Memory.WGT) else Stage.COMPUTE


@dataclass(frozen=True, kw_only=True)
class Store(Transfer):
    """SRAM to DRAM: the low bytes of ACC, without padding."""

    opcode: ClassVar[Opcode] = Opcode.STORE

    @property
    def stage(self) -> Stage:
        """The store unit."""
        return Stage.STORE


@dataclass(frozen=True, kw_only=True)
class Loop(Instruction):
    """Micro-ops [uop_bgn, uop_end), repeated: index = micro-op + outer * out + inner * in."""

    uop_bgn: int
    uop_end: int
    iter_out: int = 1
    iter_in: int = 1
    dst_factor_out: int = 0
    dst_factor_in: int = 0
    src_factor_out: int = 0
    src_factor_in: int = 0

    @property
    def steps(self) -> int:
        """Micro-ops that it executes."""
        return self.iter_out * self.iter_in * max(0, self.uop_end - self.uop_bgn)


@dataclass(frozen=True, kw_only=True)
class Gemm(Loop):
    """acc[dst] += inp[src] @ wgt[wgt].T, or with `reset_reg` acc[dst] = 0."""

    reset_reg: int = 0
    wgt_factor_out: int = 0
    wgt_factor_in: int = 0

    opcode: ClassVar[Opcode] = Opcode.GEMM


@dataclass(frozen=True, kw_only=True)
class Alu(Loop):
    """acc[dst] = op(acc[dst], imm if use_imm else acc[src])."""

    reset_reg: int = 0  # ignored
    alu_opcode: int
    use_imm: int = 0
    imm: int = 0

    opcode: ClassVar[Opcode] = Opcode.ALU


@dataclass(frozen=True, kw_only=True)
class Finish(Instruction):
    """The end of the program."""

    opcode: ClassVar[Opcode] = Opcode.FINISH


INSTRUCTIONS: dict[Opcode, type[Instruction]] = {
    cls.opcode: cls for cls in (Load, Store, Gemm, Finish, Alu)
}


@dataclass(frozen=True)
class Field:
    """Bits [position, position + width) of an instruction."""

    name: str
    position: int
    width: int

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest value; the immediate alone is signed.

        >>> Field("imm", 112, 16).limits
        (-32768, 32767)
        """
        if self.name in _SIGNED:
            return -(1 << (self.width - 1)), (1 << (self.width - 1)) - 1
        return 0, (1 << self.width) - 1


_SIGNED = frozenset({"imm"})
_HEAD = (("opcode", 3), ("pop_prev", 1), ("pop_next", 1), ("push_prev", 1), ("push_next", 1))
_TRANSFER = (
    (*_HEAD, ("memory_type", 3), ("sram_base", 16), ("dram_base", 32)),
    (
        *(("y_size", 16), ("x_size", 16), ("x_stride", 16)),
        *(("y_pad_0", 4), ("y_pad_1", 4), ("x_pad_0", 4), ("x_pad_1", 4)),
    ),
)


@functools.cache
def layout(config: VtaConfig, opcode: Opcode) -> tuple[Field, ...]:
    """The fields of an instruction, in the order of their bits.

    >>> [(f.name, f.position) for f in layout(VtaConfig(), Opcode.GEMM)][-2:]
    [('wgt_factor_out', 108), ('wgt_factor_in', 118)]
    """
    found = []
    for word, members in enumerate(_words(config)[opcode]):
        position = word * WORD_BITS
        for name, width in members:
            found.append(Field(name, position, width))
            position += width
    return tuple(found)


def _words(config: VtaConfig) -> dict[Opcode, tuple[tuple[tuple[str, int], ...], ...]]:
    uop, wgt, inp, acc = (
        config.index_bits(memory) for memory in (Memory.UOP, Memory.WGT, Memory.INP, Memory.ACC)
    )
    loop = (
        *(*_HEAD, ("reset_reg", 1), ("uop_bgn", uop), ("uop_end", uop + 1)),
        *(("iter_out", LOOP_BITS), ("iter_in", LOOP_BITS)),
    )
    dst = (("dst_factor_out", acc), ("dst_factor_in", acc))
    gemm = (
        *(*dst, ("src_factor_out", inp), ("src_factor_in", inp)),
        *(("wgt_factor_out", wgt), ("wgt_factor_in", wgt)),
    )
    alu = (
        *(*dst, ("src_factor_out", acc), ("src_factor_in", acc)),
        *(("alu_opcode", 3), ("use_imm", 1), ("imm", 16)),
    )
    return {
        Opcode.LOAD: _TRANSFER,
        Opcode.STORE: _TRANSFER,
        Opcode.GEMM: (loop, gemm),
        Opcode.FINISH: (_HEAD,),
        Opcode.ALU: (loop, alu),
    }


def encode(config: VtaConfig, instruction: Instruction) -> bytes:
    """The 16 bytes of an instruction.

    Raises:
        ProgramError: a value does not fit its field.
    """
    word = 0
    for field in layout(config, instruction.opcode):
        value = int(getattr(instruction, field.name))
        low, high = field.limits
        if not low <= value <= high:
            raise ProgramError(
                f"VTA {instruction.opcode.name}: {field.name} is {value}, expected {low} to {high} "
                f"({field.width} bits)."
            )
        word |= (value & ((1 << field.width) - 1)) << field.position
    return word.to_bytes(INSTRUCTION_BYTES, "little")


def decode(config: VtaConfig, data: bytes) -> Instruction:
    """The instruction in 16 bytes.

    Raises:
        ProgramError: an unknown opcode, or bits outside all fields that are not 0.

    >>> config = VtaConfig()
    >>> decode(config, encode(config, Finish(pop_next=1)))
    Finish(pop_prev=0, pop_next=1, push_prev=0, push_next=0)
    """
    word = int.from_bytes(data, "little")
    opcode = word & 7
    if opcode not in INSTRUCTIONS:
        raise ProgramError(
            f"VTA instruction {data.hex()}: unknown opcode {opcode}, expected "
            f"{', '.join(f'{op.value} ({op.name})' for op in Opcode)}."
        )
    cls = INSTRUCTIONS[Opcode(opcode)]
    values = {}
    for field in layout(config, cls.opcode):
        mask = ((1 << field.width) - 1) << field.position
        value = (word & mask) >> field.position
        values[field.name] = value if value <= field.limits[1] else value - (1 << field.width)
        word &= ~mask
    if word:
        raise ProgramError(
            f"VTA {cls.opcode.name} {data.hex()}: unused bits are set ({word:#x}), expected 0."
        )
    del values["opcode"]
    return cls(**values)


def encode_all(config: VtaConfig, instructions: list[Instruction]) -> Array:
    """Instructions as uint8 (n, 16)."""
    data = b"".join(encode(config, instruction) for instruction in instructions)
    return np.frombuffer(data, np.uint8).reshape(-1, INSTRUCTION_BYTES)


def decode_all(config: VtaConfig, data: Array) -> list[Instruction]:
    """Instructions in uint8 (n, 16)."""
    return [decode(config, row.tobytes()) for row in np.asarray(data, np.uint8)]


def pack_micro_ops(config: VtaConfig, dst: Array, src: Array, wgt: Array | int = 0) -> Array:
    """Micro-ops as uint32; `src` indexes INP in a GEMM and ACC in an ALU instruction.

    Raises:
        ProgramError: an index that its bits cannot hold.
    """
    acc, weight = config.index_bits(Memory.ACC), config.index_bits(Memory.WGT)
    parts = zip(("dst", "src", "wgt"), (dst, src, wgt), (acc, acc, weight), strict=True)
    word, position = np.zeros(np.shape(dst), np.uint32), 0
    for name, value, width in parts:
        value = np.asarray(value, np.int64)
        if value.size and not 0 <= value.min() <= value.max() < 1 << width:
            raise ProgramError(
                f"VTA micro-op: {name} from {value.min()} to {value.max()}, expected 0 to "
                f"{(1 << width) - 1}."
            )
        word |= (value << position).astype(np.uint32)
        position += width
    return word


def unpack_micro_ops(config: VtaConfig, words: Array) -> tuple[Array, Array, Array]:
    """dst, src and wgt of micro-ops, int64."""
    acc, weight = config.index_bits(Memory.ACC), config.index_bits(Memory.WGT)
    words = words.astype(np.int64)
    mask = (1 << acc) - 1
    return words & mask, words >> acc & mask, words >> 2 * acc & ((1 << weight) - 1)


def disassemble(instruction: Instruction) -> str:
    """One line of text.

    >>> disassemble(Load(memory_type=2, dram_base=512, y_size=3, x_size=8, x_stride=9))
    'LOAD INP sram 0 dram 0x200 3x8 stride 9'
    >>> disassemble(Finish(pop_next=1))
    'FINISH [pop STORED]'
    """
    tokens = [f"pop {token.name}" for token in instruction.pops]
    tokens += [f"push {token.name}" for token in instruction.pushes]
    text = " ".join([instruction.opcode.name, *_DETAILS[instruction.opcode](instruction)])
    return f"{text} [{', '.join(tokens)}]" if tokens else text


def _transfer_details(instruction: Any) -> list[str]:
    if instruction.is_nop:
        return ["NOP"]
    memory = instruction.memory_type
    pads = [
        getattr(instruction, field.name) for field in fields(instruction) if "_pad_" in field.name
    ]
    return [
        Memory(memory).name if memory in iter(Memory) else f"memory {memory}",
        f"sram {instruction.sram_base} dram {instruction.dram_base:#x}",
        f"{instruction.y_size}x{instruction.x_size} stride {instruction.x_stride}",
        *([f"pad {','.join(map(str, pads))}"] if any(pads) else []),
    ]


def _loop_details(instruction: Any) -> list[str]:
    factors = []
    for name in ("dst", "src", "wgt"):
        out, inner = (getattr(instruction, f"{name}_factor_{loop}", None) for loop in ("out", "in"))
        factors += [f"{name} {out},{inner}"] if out is not None else []
    loops = f"{instruction.iter_out}x{instruction.iter_in}"
    return [f"uop {instruction.uop_bgn}:{instruction.uop_end} loop {loops}", *factors]


def _gemm_details(instruction: Any) -> list[str]:
    return [*(["RESET"] if instruction.reset_reg else []), *_loop_details(instruction)]


def _alu_details(instruction: Any) -> list[str]:
    operation = instruction.alu_opcode
    name = AluOp(operation).name if operation in iter(AluOp) else f"op {operation}"
    operand = [f"imm {instruction.imm}"] if instruction.use_imm else []
    return [name, *operand, *_loop_details(instruction)]


_DETAILS: dict[Opcode, Any] = {
    Opcode.LOAD: _transfer_details,
    Opcode.STORE: _transfer_details,
    Opcode.GEMM: _gemm_details,
    Opcode.FINISH: lambda _: [],
    Opcode.ALU: _alu_details,
}
