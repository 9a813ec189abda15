"""`from_onnx` and its like: front doors with the arguments of old, over `tvm_quant.load`.

Each returns a Relax module and its parameters; weights are constants, so the latter are empty
unless the format keeps them apart.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import IRModule, relax, tirx

import tvm_quant
from tvm_quant.errors import FrontendError
from tvm_quant.frontend.base import first_line
from tvm_quant.ir.signature import main_function

Loaded = tuple[IRModule, dict[str, Any]]


def from_onnx(
    model: Any,
    shape: Mapping[str, Sequence[int]] | None = None,
    dtype: Any = "float32",
    opset: int | None = None,
    freeze_params: bool = True,
    convert_config: Any = None,
) -> Loaded:
    """An `onnx.ModelProto` or a path; `shape` fixes dimensions that the file leaves open."""
    return tvm_quant.load(model, shapes=shape)


def from_pytorch(
    script_module: Any, input_infos: Sequence[Any], *_args: Any, **_options: Any
) -> Loaded:
    """An `nn.Module`, an `ExportedProgram`, or what `torch.jit.trace` returned.

    Args:
        script_module: the network.
        input_infos: (name, shape) or (name, (shape, dtype)) of each input; they get these names.

    Raises:
        FrontendError: PyTorch cannot export the network, or it has another number of inputs.
    """
    examples = [_example(*info) for info in input_infos]
    network = _exported(script_module, examples)
    mod, params = tvm_quant.load(network, example_inputs=examples)
    names = [str(name) for name, *_ in input_infos]
    return _renamed(_sized(mod, names, examples), names), params


def from_tflite(
    model: Any,
    shape_dict: Mapping[str, Sequence[int]] | None = None,
    dtype_dict: Any = None,
    op_converter: Any = None,
) -> Loaded:
    """A path, the bytes of a file, or the `tflite.Model` of a buffer."""
    buffer = getattr(getattr(model, "_tab", None), "Bytes", None)
    return tvm_quant.load(model if buffer is None else bytes(buffer), shapes=shape_dict)


def from_mxnet(
    symbol: Any,
    shape: Mapping[str, Sequence[int]] | None = None,
    dtype: Any = "float32",
    arg_params: Mapping[str, Any] | None = None,
    aux_params: Mapping[str, Any] | None = None,
) -> Loaded:
    """A symbol with its parameters, or a hybrid block."""
    source = symbol if arg_params is None else (symbol, arg_params, aux_params or {})
    return tvm_quant.load(source, shapes=shape)


def _example(_name: str, info: Any, dtype: str = "float32") -> Any:
    if len(info) == 2 and isinstance(info[1], str):
        info, dtype = info
    return np.zeros(tuple(info), dtype)


def _exported(network: Any, examples: Sequence[Any]) -> Any:
    """TorchScript by PyTorch's own converter; anything else as it is."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(network, torch.jit.ScriptModule):
        return network
    from torch._export.converter import TS2EPConverter

    try:
        return TS2EPConverter(network, tuple(map(torch.from_numpy, examples)), {}).convert()
    except Exception as error:
        raise FrontendError(
            f"PyTorch cannot convert the {type(network).__name__}: {first_line(error)}. Pass the "
            "nn.Module that it was made of."
        ) from error


def _sized(mod: IRModule, names: Sequence[str], examples: Sequence[Any]) -> IRModule:
    """The network for inputs of these shapes alone, as Relay had it."""
    function = main_function(mod)
    if len(names) != len(function.params):
        known = [str(param.name) for param in function.params]
        raise FrontendError(
            f"input_infos name {list(names)}; the inputs of the network are {known}."
        )
    sizes = {
        dim: size
        for param, example in zip(function.params, examples, strict=True)
        for dim, size in zip(param.ty.shape.values, example.shape, strict=True)
        if isinstance(dim, tirx.Var)
    }
    return relax.transform.BindSymbolicVars(sizes, "main")(mod) if sizes else mod


def _renamed(mod: IRModule, names: Sequence[str]) -> IRModule:
    """The network with these names of inputs."""
    function = main_function(mod)
    params = [relax.Var(name, param.ty) for name, param in zip(names, function.params, strict=True)]
    body = function.bind_params(dict(zip(function.params, params, strict=True))).body
    renamed = relax.Function(params, body, function.ret_ty, function.is_pure, function.attrs)
    return IRModule({**dict(mod.functions_items()), mod.get_global_var("main"): renamed})
