"""`from_onnx` and its like: front doors with the arguments of old, over `tvm_quant.load`.

Each returns a Relax module and its parameters; weights are constants, so the latter are empty
unless the format keeps them apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import IRModule

import tvm_quant

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
    """An `nn.Module` or `ExportedProgram`, by `torch.export`.

    Args:
        script_module: the network.
        input_infos: (name, shape) or (name, (shape, dtype)) of each input.
    """
    examples = [_example(*info) for info in input_infos]
    return tvm_quant.load(script_module, example_inputs=examples)


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
