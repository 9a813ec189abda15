"""Static checks of a program: every program that the compiler emits passes them.

    form      each instruction alone: fields, ports, the subset that all designs of VTA run
    order     tokens, memories' bounds, races between stages
    meaning   each tensor that is stored is what its layer says

Each names the instruction that is wrong, by its number and its layer.
"""

from tvm_quant.backend.vta.codegen.program import Program
from tvm_quant.backend.vta.codegen.verify.form import check_form
from tvm_quant.backend.vta.codegen.verify.meaning import check_meaning
from tvm_quant.backend.vta.codegen.verify.order import check_order
from tvm_quant.backend.vta.layer import Region


def verify(program: Program, region: Region | None = None, *, extended: bool = False) -> None:
    """Check a program.

    Args:
        region: what it computes; None leaves that open.
        extended: allow what only the functional simulator has.

    Raises:
        BackendError: an instruction has no such form; a stage waits for ever, tokens are left or
            too many, FINISH is not last; an access leaves its memory, reads what nothing wrote, or
            races with another; a stored element is not what its layer says, or may overflow.
    """
    check_form(program, extended=extended)
    sequence = check_order(program)
    if region is not None:
        check_meaning(program, region, sequence)


__all__ = ["verify"]
