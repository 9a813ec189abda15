"""`from_onnx` and its like: front doors with the arguments of old, over `tvm_quant.load`.

Each returns a Relax module and its parameters; weights are constants, so the latter are empty.
Arguments that chose among forms of the same network are accepted; those that would make another
network work, or are refused.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tvm import IRModule, relax, tirx

import tvm_quant
from tvm_quant.errors import FrontendError, UnsupportedError
from tvm_quant.frontend.base import first_line
from tvm_quant.ir import TensorInfo, io_signature
from tvm_quant.ir.signature import main_function

Loaded = tuple[IRModule, dict[str, Any]]
Shapes = Mapping[str, Sequence[int]]

#: The default of `dtype` everywhere; it says nothing of a network, as it did.
_DEFAULT = "float32"
#: Short names of types in the old documentation of `from_pytorch`.
_TYPES = {"float": "float32", "int": "int32"}


def from_onnx(
    model: Any,
    shape: Shapes | None = None,
    dtype: Any = _DEFAULT,
    opset: int | None = None,
    freeze_params: bool = True,
    convert_config: Mapping[str, Any] | None = None,
) -> Loaded:
    """Read an ONNX network.

    Args:
        model: an `onnx.ModelProto`, a path, or the bytes of a file.
        shape: {input: shape}, which fixes dimensions that the file leaves open.
        dtype: of all inputs, or {input: dtype}; has to be what the file says, "float32" aside.
        opset: has to be the file's.
        freeze_params: accepted; weights are constants, which `quantize` and `build` make of them
            otherwise.
        convert_config: accepted; it chose among operators that compute the same.

    Raises:
        FrontendError: no such file, a damaged one, an operator that nobody converts, or arguments
            that contradict the file.
    """
    mod, params = tvm_quant.load(model, shapes=shape)
    _check_types(mod, "dtype", dtype)
    if opset is not None:
        _check_opset(model, opset)
    return mod, params


def from_pytorch(
    script_module: Any,
    input_infos: Sequence[Any],
    custom_convert_map: Mapping[str, Any] | None = None,
    default_dtype: str = _DEFAULT,
    use_parser_friendly_name: bool = False,
    keep_quantized_weight: bool = False,
    export_renamed_c_graph_path: str | None = None,
    preserve_pytorch_scopes: bool = False,
) -> Loaded:
    """Read a network of PyTorch.

    Args:
        script_module: an `nn.Module`, an `ExportedProgram`, or what `torch.jit.trace` returned.
        input_infos: (name, shape) or (name, (shape, dtype)) of each input; they get these names.
        custom_convert_map, export_renamed_c_graph_path: refused.
        default_dtype: float32.
        use_parser_friendly_name, keep_quantized_weight, preserve_pytorch_scopes: accepted; they
            changed names, or where weights stood.

    Raises:
        FrontendError: PyTorch cannot export the network, or it has other inputs.
        UnsupportedError: an argument that is refused.
    """
    _refuse("custom_convert_map", custom_convert_map, "Write the operator with others in PyTorch.")
    _refuse("export_renamed_c_graph_path", export_renamed_c_graph_path, "Nothing is renamed.")
    if default_dtype != _DEFAULT:
        _refuse("default_dtype", default_dtype, "Give types in input_infos: (shape, dtype).")
    wanted = [_info(*info) for info in input_infos]
    examples = [np.zeros(info.shape, info.dtype) for info in wanted]  # type: ignore[type-var]
    network = _exported(script_module, examples)
    mod, params = tvm_quant.load(network, example_inputs=examples)
    names = [info.name for info in wanted]
    mod = _renamed(_sized(mod, names, examples), names)
    _check_inputs(mod, wanted)
    return mod, params


def from_tflite(
    model: Any,
    shape_dict: Shapes | None = None,
    dtype_dict: Mapping[str, str] | None = None,
    op_converter: Any = None,
) -> Loaded:
    """Read a network of TensorFlow Lite.

    Args:
        model: a path, the bytes of a file, or the `tflite.Model` of a buffer.
        shape_dict: {input: shape}, which replaces the file's.
        dtype_dict: {input: dtype}; has to be what the file says.
        op_converter: refused.

    Raises:
        FrontendError: a damaged file, an operator that nobody converts, or arguments that
            contradict the file.
        UnsupportedError: an `op_converter`.
    """
    _refuse("op_converter", op_converter, "It made Relay of operators; there is none to make.")
    buffer = getattr(getattr(model, "_tab", None), "Bytes", None)
    source = model if buffer is None else bytes(buffer)
    mod, params = tvm_quant.load(source, shapes=shape_dict)
    _check_names(mod, "shape_dict", shape_dict or {})
    _check_types(mod, "dtype_dict", dtype_dict or {})
    return mod, params


def from_mxnet(
    symbol: Any,
    shape: Shapes | None = None,
    dtype: Any = _DEFAULT,
    arg_params: Mapping[str, Any] | None = None,
    aux_params: Mapping[str, Any] | None = None,
) -> Loaded:
    """Read a network of MXNet.

    Args:
        symbol: a `Symbol` with its parameters, or a `HybridBlock`, which has them itself.
        shape: {input: shape}.
        dtype: of all inputs, or {input: dtype}; has to be that of the network, "float32" aside.
        arg_params, aux_params: {name: array}.

    Raises:
        FrontendError: an operator that nobody converts, or arguments that do not belong together.
    """
    given = arg_params is not None or aux_params is not None
    source = (symbol, arg_params or {}, aux_params or {}) if given else symbol
    mod, params = tvm_quant.load(source, shapes=shape)
    _check_types(mod, "dtype", dtype)
    return mod, params


# What the network has to agree with ------------------------------------------------------------


def _refuse(name: str, value: object, instead: str) -> None:
    if value:
        raise UnsupportedError(f"{name} is {value!r}; it is not supported. {instead}")


def _check_opset(model: Any, opset: int) -> None:
    import onnx

    from tvm_quant.frontend.onnx.model import opset_of

    if isinstance(model, str | Path):
        model = onnx.load(str(model), load_external_data=False)
    elif isinstance(model, bytes):
        model = onnx.load_model_from_string(model)
    if opset != opset_of(model):
        raise FrontendError(
            f"opset is {opset}; the model is of opset {opset_of(model)}. Leave opset out, or "
            "convert the model: onnx.version_converter.convert_version(model, opset)."
        )


def _check_names(mod: IRModule, argument: str, given: Mapping[str, object]) -> None:
    known = [info.name for info in io_signature(mod)]
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise FrontendError(f"{argument} names {unknown}; the inputs of the network are {known}.")


def _check_types(mod: IRModule, argument: str, given: Any) -> None:
    """Refuse types other than those of the inputs: {input: dtype}, or one of all inputs."""
    found = {info.name: info.dtype for info in io_signature(mod)}
    if not isinstance(given, Mapping):
        given = {} if _type(given) == _DEFAULT else dict.fromkeys(found, given)
    _check_names(mod, argument, given)
    other = {name: kind for name, kind in given.items() if _type(kind) != found[name]}
    if other:
        raise FrontendError(
            f"{argument} gives {other}; the inputs of the network are {found}. Leave {argument} "
            "out, or convert the network before it is read."
        )


def _check_inputs(mod: IRModule, wanted: Sequence[TensorInfo]) -> None:
    found = io_signature(mod)
    for given, info in zip(wanted, found, strict=True):
        if given != info:
            raise FrontendError(
                f"input_infos give {info.name} as {given.dtype} of shape {given.shape}; the "
                f"network takes {info.dtype} of shape {info.shape}."
            )


def _type(kind: Any) -> str:
    name = kind if isinstance(kind, str) else np.dtype(kind).name
    return _TYPES.get(name, name)


# Networks of PyTorch ---------------------------------------------------------------------------


def _info(name: str, info: Any) -> TensorInfo:
    shape, dtype = info, _DEFAULT
    if len(info) == 2 and isinstance(info[1], str):
        shape, dtype = info
    return TensorInfo(name=str(name), shape=tuple(shape), dtype=_type(dtype))


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
        for dim, size in zip(param.ty.shape.values, example.shape, strict=False)
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
