"""`verify`: whether a program is right under every order that its tokens allow, without running it.

Checks, on every program that the compiler makes: fields in range; tokens balance, never more than
255 wait, no deadlock; all indices and addresses lie inside their memory and tensor, constants are
not written; nothing is read before it was written; no two accesses of different stages race; only
what all implementations of VTA agree on is used; sums stay within int32, stored values within int8.
"""

from __future__ import annotations

from tvm_quant.backend.vta.isa import disassemble, encode_all
from tvm_quant.backend.vta.program import Program
from tvm_quant.backend.vta.streams import interleave
from tvm_quant.backend.vta.verify.accesses import Accesses
from tvm_quant.backend.vta.verify.clocks import clocks
from tvm_quant.backend.vta.verify.ending import check_ending
from tvm_quant.backend.vta.verify.portable import check_portable
from tvm_quant.errors import ProgramError

__all__ = ["verify"]


def verify(program: Program) -> None:
    """Check a program.

    Raises:
        ProgramError: it breaks a rule; the message names instruction, layer and tensor.
    """
    encode_all(program.config, list(program.instructions))
    order = list(interleave(program.instructions))
    seen = clocks(program.instructions, order)
    check_ending(program, seen)
    accesses = Accesses(program)
    for index in order:
        instruction = program.instructions[index]
        try:
            found = accesses.visit(instruction, seen[index])
            if not program.extended:
                check_portable(instruction, found)
        except ProgramError as error:
            raise ProgramError(
                f"VTA program: instruction {index} ({disassemble(instruction)}) of layer "
                f"'{program.layer_of(index)}': {error}."
            ) from error
