"""Front end for ONNX: a file, its bytes, or an `onnx.ModelProto`.

TVM's own importer does most of the work. On top of it this package reads external data, folds shape
arithmetic, replaces the converters that would hide a Relax operator inside an opaque kernel
(`converters/`), and records the node names (`importer.py`). What other tools quantized becomes
float operators between calibrated quantizers (`converters/quantized/`).
"""

from __future__ import annotations

from tvm import IRModule

from tvm_quant.frontend.base import Frontend, Params, Request, failures_told, has_suffix

#: Sums are exact in integers, or float32 as in ONNX Runtime without graph optimizations.
_EXACT, _ONNX_RUNTIME = "exact", "onnxruntime"


def _accepts(source: object) -> bool:
    if isinstance(source, bytes):
        return source[4:8] != b"TFL3"
    return has_suffix(source, ".onnx") or _is_model_proto(source)


def _is_model_proto(source: object) -> bool:
    return type(source).__name__ == "ModelProto" and type(source).__module__.startswith("onnx")


def _load(request: Request) -> tuple[IRModule, Params]:
    from tvm_quant.frontend.onnx.importer import import_model
    from tvm_quant.frontend.onnx.model import read_model

    with failures_told(
        lambda line: (
            f"The ONNX model cannot be imported: {line} It is damaged; "
            "onnx.checker.check_model(path, full_check=True) tells where."
        )
    ):
        model = read_model(request.source, request.shapes)
        return import_model(model, float_sums=request.rounding == _ONNX_RUNTIME), {}


FRONTEND = Frontend(
    name="onnx",
    reads="an .onnx file (external data beside it), its bytes, or an onnx.ModelProto",
    accepts=_accepts,
    load=_load,
    roundings=(_EXACT, _ONNX_RUNTIME),
)
