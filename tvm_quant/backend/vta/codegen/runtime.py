"""`tvm_quant.vta.run`: the function that a compiled network calls for a region."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax

from tvm_quant.backend.vta.codegen.program import Program
from tvm_quant.backend.vta.codegen.sim import simulate
from tvm_quant.ir import constant

RUN = "tvm_quant.vta.run"
PARTS = 3  # image, instructions, meta


def arguments(program: Program) -> Sequence[relax.Expr]:
    """A program as constants of a module."""
    return [constant(part) for part in (program.image, program.encoded(), program.meta())]


@tvm.register_global_func(RUN, override=True)
def _run(*tensors: Any) -> None:
    first = next(at for at, tensor in enumerate(tensors) if str(tensor.dtype) == "uint8")
    program = Program.decoded(*(tensor.numpy() for tensor in tensors[first : first + PARTS]))
    result = simulate(program, [tensor.numpy() for tensor in tensors[:first]])
    for target, value in zip(tensors[first + PARTS :], result.outputs, strict=True):
        target.copyfrom(value)
