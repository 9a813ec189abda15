"""`relay.frontend`: `from_onnx` and its like; and the front end that reads Relay itself.

`tvm_quant.load` finds the latter, for texts and for Python objects, by the entry point `relay` of
this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tvm import IRModule

from tvm_quant.errors import FrontendError, TvmQuantError
from tvm_quant.frontend.base import Frontend, GivenParams, Params, Request, Shapes, has_suffix
from tvm_relay.expr import Call, Constant, Function, Var, as_array
from tvm_relay.front_doors import from_mxnet, from_onnx, from_pytorch, from_tflite
from tvm_relay.module import Module
from tvm_relay.text.ndarray import load_param_dict
from tvm_relay.text.parser import parse
from tvm_relay.to_relax import to_relax
from tvm_relay.ty import TensorType

__all__ = ["FRONTEND", "from_mxnet", "from_onnx", "from_pytorch", "from_tflite"]

_SUFFIXES = (".relay", ".rly")
#: Where the weights of `net.relay` are looked for when none are given.
_PARAMS_SUFFIX = ".params"


def _accepts(source: object) -> bool:
    if isinstance(source, tuple) and len(source) == 2:
        return isinstance(source[0], Module | Function) and isinstance(source[1], Mapping)
    return isinstance(source, Module | Function) or has_suffix(source, *_SUFFIXES)


def _load(request: Request) -> tuple[IRModule, Params]:
    source, given = request.source, request.params
    path = request.path()
    if path is not None:
        source = parse(_read_text(path), source_name=str(path))
        beside = path.with_suffix(_PARAMS_SUFFIX)
        given = beside if given is None and beside.is_file() else given
    elif isinstance(source, tuple):
        source, given = source
    module = source if isinstance(source, Module) else Module.from_expr(source)  # type: ignore[arg-type]
    return to_relax(_bound(module, _weights(given), request.shapes or {})), {}


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FrontendError(f"{path} is no text: {error}") from None


def _weights(given: GivenParams | None) -> dict[str, np.ndarray]:
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return {name: as_array(value) for name, value in given.items()}
    path = Path(given)
    if not path.is_file():
        raise FrontendError(f"No such file of parameters: {path}")
    try:
        return load_param_dict(path.read_bytes())
    except TvmQuantError as error:
        raise FrontendError(f"{path}: {error}") from None


def _bound(module: Module, weights: Mapping[str, np.ndarray], shapes: Shapes) -> Module:
    """A module whose `main` calls the given one: with these weights, on inputs of these shapes.

    Weights that it does not take are left aside, as TVM does: files often hold more than is read.
    """
    main = module["main"]
    _check_shapes(main, shapes)
    if not weights and not shapes:
        return module
    args = [
        Constant(_fitting(param, weights[param.name_hint]))
        if param.name_hint in weights
        else _input(param, shapes.get(param.name_hint))
        for param in main.params
    ]
    inputs = tuple(arg for arg in args if isinstance(arg, Var))
    outer = Function(inputs, Call(main, tuple(args)), attrs=main.attrs)
    return module.with_function("main", outer)


def _input(param: Var, shape: Any) -> Var:
    kind = param.type_annotation
    if shape is None:
        return Var(param.name_hint, kind)
    dtype = kind.dtype if isinstance(kind, TensorType) else "float32"
    return Var(param.name_hint, TensorType(tuple(shape), dtype))


def _fitting(param: Var, value: np.ndarray) -> np.ndarray:
    """The weight of a parameter, which has its type."""
    kind = param.type_annotation
    if not isinstance(kind, TensorType):
        return value
    known = [
        dim if isinstance(dim, int) else size
        for dim, size in zip(kind.shape, value.shape, strict=False)
    ]
    if len(kind.shape) != value.ndim or (*known, kind.dtype) != (*value.shape, str(value.dtype)):
        raise FrontendError(
            f"The weight '{param.name_hint}' is {value.dtype} of shape {value.shape}; @main takes "
            f"{kind.dtype} of shape {kind.shape}."
        )
    return value


def _check_shapes(main: Function, shapes: Shapes) -> None:
    known = [param.name_hint for param in main.params]
    unknown = sorted(set(shapes) - set(known))
    if unknown:
        raise FrontendError(f"shapes name {unknown}; the parameters of @main are {known}.")


FRONTEND = Frontend(
    name="relay",
    reads="a Relay text (.relay), with or without a .params file beside it",
    accepts=_accepts,
    load=_load,
    takes_params=True,
)
