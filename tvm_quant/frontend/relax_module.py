"""Front end for what TVM users hold already: a Relax module, with or without its parameters."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tvm
from tvm import IRModule, relax

from tvm_quant.errors import FrontendError
from tvm_quant.frontend.base import Frontend, Params, Request
from tvm_quant.ir.signature import main_function


def _accepts(source: object) -> bool:
    if isinstance(source, tuple) and len(source) == 2:
        return isinstance(source[0], IRModule) and isinstance(source[1], Mapping)
    return isinstance(source, IRModule)


def _load(request: Request) -> tuple[IRModule, Params]:
    source = request.source
    mod, params = source if isinstance(source, tuple) else (source, {})
    assert isinstance(mod, IRModule)
    func = main_function(mod)
    if not isinstance(func, relax.Function):
        raise FrontendError(
            f"'main' is a {type(func).__name__}; expected a Relax function. A module for "
            "quantization holds the float network as Relax operators, before any lowering."
        )
    if request.shapes:
        raise FrontendError(
            "'shapes' applies to files; give a Relax module its shapes with "
            "relax.transform.BindSymbolicVars."
        )
    return mod, {name: _as_numpy(name, value) for name, value in params.items()}


def _as_numpy(name: str, value: object) -> np.ndarray:
    if isinstance(value, tvm.runtime.Tensor):
        return np.asarray(value.numpy())
    try:
        array = np.asarray(value)
    except Exception as error:
        raise FrontendError(f"Parameter '{name}' is no array: {error}") from error
    if array.dtype == object:
        raise FrontendError(f"Parameter '{name}' is a {type(value).__name__}; expected an array.")
    return array


FRONTEND = Frontend(
    name="relax",
    reads="a tvm.IRModule, or (tvm.IRModule, params)",
    accepts=_accepts,
    load=_load,
)
