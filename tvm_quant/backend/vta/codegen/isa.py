"""The instructions of VTA: 128 bits, little endian.

Source: apache/tvm-vta, include/vta/hw_spec.h.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from tvm_quant.backend.vta.config import Memory, VtaConfig
from tvm_quant.errors import BackendError


class Opcode(IntEnum):
    """What an instruction does."""

    LOAD = 0
    STORE = 1
    GEMM = 2
    FINISH = 3
    ALU = 4


class Alu(IntEnum):
    """Operations of the ALU."""

    MIN = 0
    MAX = 1
    ADD = 2
    SHR = 3  # arithmetic; to the left by a negative count
    MUL = 4  # in the functional simulator alone; no program here has it


class Stage(IntEnum):
    """The three queues."""

    LOAD = 0
    COMPUTE = 1
    STORE = 2


FLAGS = ("pop_prev", "pop_next", "push_prev", "push_next")
#: The queue of tokens of each flag: l(oad), g(emm: compute) and s(tore), from one to another.
PORTS = {
    (Stage.LOAD, "pop_next"): "g2l",
    (Stage.LOAD, "push_next"): "l2g",
    (Stage.COMPUTE, "pop_prev"): "l2g",
    (Stage.COMPUTE, "pop_next"): "s2g",
    (Stage.COMPUTE, "push_prev"): "g2l",
    (Stage.COMPUTE, "push_next"): "g2s",
    (Stage.STORE, "pop_prev"): "g2s",
    (Stage.STORE, "push_prev"): "s2g",
}
Field = tuple[str, int, int]  # name, first bit, bits


@dataclass(kw_only=True)
class Instruction:
    """An instruction: its opcode and its fields; those that are left out are 0."""

    opcode: Opcode
    fields: dict[str, int] = field(default_factory=dict)
    label: str = ""

    def __getitem__(self, name: str) -> int:
        return self.fields.get(name, 0)

    @property
    def stage(self) -> Stage:
        """The queue that it runs in."""
        if self.opcode is Opcode.STORE:
            return Stage.STORE
        loads = self.opcode is Opcode.LOAD and self["memory_type"] in (Memory.WGT, Memory.INP)
        return Stage.LOAD if loads else Stage.COMPUTE


def layout(opcode: Opcode, config: VtaConfig) -> list[Field]:
    """Where the fields of an instruction lie."""
    common: list[Field] = [("opcode", 0, 3)] + [(flag, 3 + i, 1) for i, flag in enumerate(FLAGS)]
    if opcode is Opcode.FINISH:
        return common
    if opcode in (Opcode.LOAD, Opcode.STORE):
        first = _packed(7, [("memory_type", 3), ("sram_base", 16), ("dram_base", 32)])
        pads = [("y_pad_0", 4), ("y_pad_1", 4), ("x_pad_0", 4), ("x_pad_1", 4)]
        sizes = [("y_size", 16), ("x_size", 16), ("x_stride", 16)]
        return [*common, *first, *_packed(64, [*sizes, *pads])]
    uop, acc = config.index_bits(Memory.UOP), config.index_bits(Memory.ACC)
    inp, wgt = config.index_bits(Memory.INP), config.index_bits(Memory.WGT)
    loops = [("uop_bgn", uop), ("uop_end", uop + 1), ("iter_out", 14), ("iter_in", 14)]
    first = _packed(7, [("reset_reg", 1), *loops])
    factors = [("dst_factor_out", acc), ("dst_factor_in", acc)]
    if opcode is Opcode.GEMM:
        rest = [("src_factor_out", inp), ("src_factor_in", inp)]
        rest += [("wgt_factor_out", wgt), ("wgt_factor_in", wgt)]
    else:
        rest = [("src_factor_out", acc), ("src_factor_in", acc)]
        rest += [("alu_opcode", 3), ("use_imm", 1), ("imm", 16)]
    return [*common, *first, *_packed(64, [*factors, *rest])]


def _packed(start: int, widths: list[tuple[str, int]]) -> list[Field]:
    found = []
    for name, bits in widths:
        found.append((name, start, bits))
        start += bits
    return found


def encode(instruction: Instruction, config: VtaConfig) -> bytes:
    """The 16 bytes of an instruction.

    Raises:
        BackendError: a field does not hold its value.
    """
    word = 0
    values = {"opcode": int(instruction.opcode), **instruction.fields}
    known = layout(instruction.opcode, config)
    for name, start, bits in known:
        value = values.pop(name, 0)
        if name == "imm":
            value &= 0xFFFF
        if not 0 <= value < 1 << bits:
            raise BackendError(
                f"VTA {instruction.opcode.name}: field {name} is {value}, which {bits} bits do not "
                "hold."
            )
        word |= value << start
    if values:
        raise BackendError(f"VTA {instruction.opcode.name} has no fields {sorted(values)}.")
    return word.to_bytes(16, "little")


def decode(data: bytes, config: VtaConfig) -> Instruction:
    """Inverse of `encode`."""
    word = int.from_bytes(data, "little")
    opcode = Opcode(word & 7)
    fields = {}
    for name, start, bits in layout(opcode, config):
        value = word >> start & ((1 << bits) - 1)
        if name == "imm" and value >= 1 << 15:
            value -= 1 << 16
        if value and name != "opcode":
            fields[name] = value
    return Instruction(opcode=opcode, fields=fields)
