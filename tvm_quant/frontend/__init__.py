"""Front doors: from a model in any supported format to a Relax module in float.

>>> {"mxnet", "onnx", "relax", "tflite", "torch"} <= set(FRONTENDS)
True
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import IRModule

from tvm_quant.errors import FrontendError
from tvm_quant.frontend import mxnet, onnx, pytorch, relax_module, tflite
from tvm_quant.frontend.base import Frontend, GivenParams, Params, Request, Shapes
from tvm_quant.frontend.plugins import FrontendTable

_ROWS = (
    relax_module.FRONTEND,
    onnx.FRONTEND,
    pytorch.FRONTEND,
    tflite.FRONTEND,
    mxnet.FRONTEND,
)
#: Every format that can be read, by name; `plugins` says how another package adds one.
FRONTENDS = FrontendTable(_ROWS)

__all__ = ["FRONTENDS", "Frontend", "load"]


def load(
    source: object,
    *,
    shapes: Shapes | None = None,
    example_inputs: Sequence[Any] | None = None,
    rounding: str | None = None,
    params: GivenParams | None = None,
) -> tuple[IRModule, Params]:
    """Read a model.

    A network that is quantized already comes as its annotated graph, in float with calibrated
    quantizers; `tvm_quant.quantize` makes integers of it without calibration.

    Args:
        source: a path (`.onnx`, `.tflite`, `.pt2`, `.relay`, MXNet's `NAME-symbol.json`), the bytes
            of an ONNX or TFLite file, an `onnx.ModelProto`, a `torch.export.ExportedProgram`, a
            `torch.nn.Module`, a Gluon `HybridBlock`, a `tvm.IRModule`, a pair (`tvm.IRModule`,
            params), or the symbol of an MXNet network with its parameters: a pair of paths,
            (`Symbol`, params) or (`Symbol`, arg_params, aux_params).
        shapes: input shapes that replace the model's, {input name: shape}; of ONNX, TFLite and
            MXNet, whose files mostly say none.
        example_inputs: a sequence of arrays or tensors; needed for a `torch.nn.Module`. For MXNet
            they give shapes and types of the inputs.
        rounding: whose integers a network that is quantized already is to give. For ONNX "exact"
            (integer sums, the default) or "onnxruntime" (convolutions between DequantizeLinear and
            QuantizeLinear stay in float32 and add in that runtime's order, as it does without graph
            optimizations: where a sum falls on a tie, that order decides). For TFLite "xnnpack" (as
            the runtime computes by default), "builtin" (its own kernels without delegates) or
            "reference" (its reference kernels).
        params: weights that stand apart from the network, for formats that keep them so: {name:
            array}, or the file that `relay.save_param_dict` wrote.

    Returns:
        (mod, params): `mod["main"]` computes the network in float; what another tool quantized
            stands there between calibrated `tvm_quant.simulated_quantize` calls. Its weights are
            constants and params is empty, unless the source was a pair. The names of the original
            nodes stand in the attribute `tvm_quant.node_names` of `main` (see
            `tvm_quant.ir.node_name`).

    Raises:
        ConfigError: a rounding that the format does not have, or params for a format without.
        FrontendError: no such file, a format nobody reads, a damaged file, or an operator that
            cannot be converted; the message names the node.

    >>> mod, params = load("resnet20.onnx", shapes={"data": (1, 3, 32, 32)})  # doctest: +SKIP
    """
    request = Request(
        source=source,
        shapes=shapes,
        example_inputs=example_inputs,
        rounding=rounding,
        params=params,
    )
    _check_path(request)
    for frontend in FRONTENDS.values():
        if frontend.accepts(source):
            frontend.check_rounding(rounding)
            frontend.check_params(params)
            return frontend.load(request)
    raise FrontendError(f"Cannot read {_describe(source)}. Accepted are:\n{_accepted()}")


def _check_path(request: Request) -> None:
    path = request.path()
    if path is None:
        return
    if not path.exists():
        raise FrontendError(f"No such model file: {path}")
    if path.is_dir():
        raise FrontendError(f"{path} is a folder; give the model file inside it.")


def _describe(source: object) -> str:
    if isinstance(source, bytes):
        return f"these {len(source)} bytes: they are no ONNX or TFLite model"
    if isinstance(source, str) or hasattr(source, "__fspath__"):
        return f"{source}: its ending is that of no known format"
    return f"an object of type {type(source).__module__}.{type(source).__qualname__}"


def _accepted() -> str:
    return "\n".join(f"  {row.name:7s} {row.reads}" for row in FRONTENDS.values())
