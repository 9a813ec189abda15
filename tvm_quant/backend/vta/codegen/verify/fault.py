"""What all checks raise."""

from __future__ import annotations

from tvm_quant.backend.vta.codegen.program import Program
from tvm_quant.errors import BackendError


def fault(program: Program, at: int, message: str) -> BackendError:
    """An error that names instruction `at`."""
    one = program.instructions[at]
    layer = f" of layer '{one.label}'" if one.label else ""
    return BackendError(f"VTA program: instruction {at}, {one.opcode.name}{layer}: {message}.")
