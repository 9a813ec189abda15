"""Inputs of a module."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relax

from tvm_quant.errors import UnsupportedError
from tvm_quant.ir.bindings import tensor_shape


@dataclass(frozen=True, kw_only=True)
class TensorInfo:
    """Name, shape and dtype of a graph input; a symbolic dimension is None."""

    name: str
    shape: tuple[int | None, ...]
    dtype: str


def io_signature(mod: tvm.IRModule) -> list[TensorInfo]:
    """Inputs of `main` in order."""
    return [_info(param) for param in main_function(mod).params]


def main_function(mod: tvm.IRModule) -> relax.Function:
    """The Relax function `main` of a module.

    Raises:
        UnsupportedError: there is none.
    """
    if "main" not in [gvar.name_hint for gvar in mod.get_global_vars()]:
        names = sorted(gvar.name_hint for gvar in mod.get_global_vars())
        raise UnsupportedError(f"The module has no function 'main'; it holds {names}.")
    return mod["main"]


def _info(param: relax.Var) -> TensorInfo:
    shape = tensor_shape(param)
    if shape is None:
        raise UnsupportedError(
            f"Input '{param.name}' has type {param.ty}; expected a tensor of known rank."
        )
    return TensorInfo(name=str(param.name), shape=shape, dtype=str(param.ty.dtype))
