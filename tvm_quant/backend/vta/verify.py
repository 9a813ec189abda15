"""Checks of a program that need no data."""

from __future__ import annotations

from tvm_quant.backend.vta.program import Program


def verify(program: Program) -> None:
    """Raise ProgramError where a program breaks a rule."""
    program.insns  # noqa: B018  # encodes all fields
