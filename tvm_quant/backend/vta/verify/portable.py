"""What all implementations of VTA agree on; they differ in the rest."""

from __future__ import annotations

import numpy as np

from tvm_quant.backend.vta.config import Memory
from tvm_quant.backend.vta.isa import Alu, AluOp, Gemm, Instruction, Load
from tvm_quant.backend.vta.loops import Indices
from tvm_quant.backend.vta.tile import SHORT_LOOP
from tvm_quant.errors import ProgramError

LARGEST_SHIFT = 15


def check_portable(instruction: Instruction, found: Indices | None) -> None:
    """Raise ProgramError for what some implementation does otherwise or not at all."""
    if isinstance(instruction, Load):
        _check_load(instruction)
    if isinstance(instruction, Alu) and found is not None:
        _check_alu(instruction, found)
    if isinstance(instruction, Alu | Gemm) and found is not None:
        _check_distance(found)


def _check_load(load: Load) -> None:
    if load.memory_type == Memory.ACC_8BIT:
        raise ProgramError("loads ACC_8BIT, which HLS and Chisel lack")
    padded = load.extent != (load.y_size, load.x_size) and not load.is_nop
    if padded and load.memory_type in (Memory.UOP, Memory.WGT):
        raise ProgramError("pads WGT or UOP, which HLS ignores")


def _check_alu(alu: Alu, found: Indices) -> None:
    if alu.alu_opcode == AluOp.MUL:
        raise ProgramError("multiplies, which HLS and Chisel lack")
    if alu.use_imm and not np.array_equal(found.dst, found.src):
        raise ProgramError("has an immediate and src unlike dst, which Chisel reads")
    if alu.alu_opcode != AluOp.SHR:
        return
    if alu.use_imm and abs(alu.imm) > LARGEST_SHIFT:
        raise ProgramError(f"shifts by {alu.imm}, expected -15 to 15")
    if not alu.use_imm and alu.imm:
        raise ProgramError(f"shifts by sums and has the immediate {alu.imm}, expected 0")


def _check_distance(found: Indices) -> None:
    for distance in range(1, SHORT_LOOP):
        again = found.dst[distance:] == found.dst[:-distance]
        if again.any():
            raise ProgramError(
                f"writes ACC {int(found.dst[distance:][again][0])} again after {distance} steps, "
                f"expected {SHORT_LOOP} or more"
            )
