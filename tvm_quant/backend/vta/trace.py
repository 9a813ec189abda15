"""The instructions of a program as text."""

from __future__ import annotations

from tvm_quant.backend.vta.config import Memory
from tvm_quant.backend.vta.isa import Alu, AluOp, Gemm, Instruction, Transfer, disassemble
from tvm_quant.backend.vta.program import Program


def listing(program: Program) -> str:
    """One line for each instruction, under the names of the layers."""
    lines, layer = [], None
    for index, instruction in enumerate(program.instructions):
        if program.layer_of(index) != layer:
            layer = program.layer_of(index)
            lines.append(f"# {layer}" if layer else "# end")
        lines.append(f"{index:6d}  {instruction.stage.name:7s}  {disassemble(instruction)}")
    return "\n".join(lines) + "\n"


def kind_of(instruction: Instruction) -> str:
    """What an instruction does, in a word or two: `LOAD WGT`, `ALU SHR`, `RESET`."""
    if isinstance(instruction, Transfer):
        return f"{instruction.opcode.name} {Memory(instruction.memory_type).name}"
    if isinstance(instruction, Alu):
        return f"ALU {AluOp(instruction.alu_opcode).name}"
    resets = isinstance(instruction, Gemm) and instruction.reset_reg
    return "RESET" if resets else instruction.opcode.name
