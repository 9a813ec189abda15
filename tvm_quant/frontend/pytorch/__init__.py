"""Front end for PyTorch: an exported program, or a module with example inputs.

PyTorch is an optional extra and is imported only when a model of it is read.
"""

from __future__ import annotations

import sys

from tvm import IRModule

from tvm_quant.frontend.base import (
    Frontend,
    Params,
    Request,
    failures_told,
    has_suffix,
    missing_extra,
)


def _accepts(source: object) -> bool:
    return has_suffix(source, ".pt2") or _is_torch(source)


def _is_torch(source: object) -> bool:
    torch = sys.modules.get("torch")  # whoever holds an object of torch has imported it
    if torch is None:
        return False
    return isinstance(source, torch.nn.Module | torch.export.ExportedProgram)


def _load(request: Request) -> tuple[IRModule, Params]:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise missing_extra("torch", "torch") from error
    from tvm_quant.frontend.pytorch.importer import import_program
    from tvm_quant.frontend.pytorch.program import exported_program

    program = exported_program(request)
    with failures_told(
        lambda line: (
            f"The exported program cannot be imported: {line}. If it is not damaged "
            "(program.module() runs), export the model to ONNX."
        )
    ):
        return import_program(program), {}


FRONTEND = Frontend(
    name="torch",
    reads="a .pt2 file, a torch.export.ExportedProgram, or a torch.nn.Module with example_inputs",
    accepts=_accepts,
    load=_load,
)
