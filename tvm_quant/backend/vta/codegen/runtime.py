"""`tvm_quant.vta.run`: the function that a compiled network calls for a region."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
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
    arrays = [np.from_dlpack(tensor) for tensor in tensors]
    program = Program.decoded(*arrays[first : first + PARTS])
    result = simulate(program, arrays[:first])
    for target, value in zip(arrays[first + PARTS :], result.outputs, strict=True):
        target[...] = value
