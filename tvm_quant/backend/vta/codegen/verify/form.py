"""Check each instruction alone: its fields, its tokens, and whether all designs of VTA have it.

The functional simulator, the HLS and the Chisel design differ; what they agree on is portable.
"""

from __future__ import annotations

from collections.abc import Iterator

from tvm_quant.backend.vta.codegen.isa import FLAGS, PORTS, Alu, Instruction, Opcode, encode
from tvm_quant.backend.vta.codegen.program import Program
from tvm_quant.backend.vta.codegen.verify.fault import fault
from tvm_quant.backend.vta.config import Memory
from tvm_quant.errors import BackendError

LONGEST_SHIFT = 15
PADS = ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")


def check_form(program: Program, *, extended: bool = False) -> None:
    """Raise BackendError at the first instruction that is not well formed."""
    ends = [at for at, one in enumerate(program.instructions) if one.opcode is Opcode.FINISH]
    if ends != [len(program.instructions) - 1]:
        raise BackendError(f"VTA program: FINISH stands at {ends}, expected once, at the end.")
    for at, one in enumerate(program.instructions):
        try:
            encode(one, program.config)
        except BackendError as error:
            raise fault(program, at, str(error).rstrip(".")) from error
        for problem in _problems(program, one, extended):
            raise fault(program, at, problem)


def _problems(program: Program, one: Instruction, extended: bool) -> Iterator[str]:
    for flag in FLAGS:
        if one[flag] and (one.stage, flag) not in PORTS:
            yield f"{flag} at stage {one.stage.name}, which has no such queue"
    if one.opcode in (Opcode.LOAD, Opcode.STORE):
        yield from _of_move(one, extended)
    elif one.opcode is not Opcode.FINISH:
        yield from _of_loops(program, one, extended)


def _of_move(one: Instruction, extended: bool) -> Iterator[str]:
    memory = one["memory_type"]
    padded = any(one[pad] for pad in PADS)
    if one["x_size"] and not one["y_size"]:
        yield "moves no rows, which not every VTA does"
    if one.opcode is Opcode.STORE:
        if memory != Memory.OUT or padded:
            yield f"memory {memory}, padded: {padded}; expected OUT without padding"
        return
    known = [Memory.UOP, Memory.WGT, Memory.INP, Memory.ACC]
    if memory not in [*known, *([Memory.ACC_8BIT] if extended else [])]:
        yield f"memory {memory}, which not every VTA loads"
    if padded and memory in (Memory.UOP, Memory.WGT):
        yield f"pads {Memory(memory).name}, which not every VTA does"
    if memory == Memory.UOP and one["y_size"] > 1:
        yield f"{one['y_size']} rows of micro-ops, expected one"


def _of_loops(program: Program, one: Instruction, extended: bool) -> Iterator[str]:
    budget = program.config.micro_op_budget(extended=extended)
    if not one["uop_bgn"] < one["uop_end"] <= budget:
        yield f"micro-ops {one['uop_bgn']} to {one['uop_end']}, expected some of {budget}"
    if not (one["iter_out"] and one["iter_in"]):
        yield f"loops of {one['iter_out']} and {one['iter_in']}, expected at least 1"
    if one.opcode is Opcode.ALU:
        yield from _of_alu(one, extended)


def _of_alu(one: Instruction, extended: bool) -> Iterator[str]:
    known = [Alu.MIN, Alu.MAX, Alu.ADD, Alu.SHR, *([Alu.MUL] if extended else [])]
    if one["alu_opcode"] not in known:
        yield f"ALU operation {one['alu_opcode']}, which not every VTA has"
    if one["reset_reg"]:
        yield "reset_reg, which the ALU ignores"
    if one["alu_opcode"] == Alu.SHR and abs(one["imm"]) > LONGEST_SHIFT:
        yield f"shifts by {one['imm']}, expected -15 to 15"
    if not one["use_imm"] and one["imm"]:
        yield f"immediate {one['imm']} beside an operand, expected 0"
    for loop in ("out", "in"):
        dst, src = one[f"dst_factor_{loop}"], one[f"src_factor_{loop}"]
        if one["use_imm"] and dst != src:
            yield f"src_factor_{loop} is {src}, expected {dst} as of dst: one design reads src"
