"""Front end for TensorFlow Lite files, in float or quantized already.

The packages tflite and flatbuffers are an optional extra, imported only when such a file is read.
"""

from __future__ import annotations

from tvm import IRModule

from tvm_quant.frontend.base import Frontend, Params, Request, has_suffix, missing_extra
from tvm_quant.frontend.tflite.kernels import KERNEL_SETS


def _accepts(source: object) -> bool:
    if isinstance(source, bytes):
        return source[4:8] == b"TFL3"
    return has_suffix(source, ".tflite")


def _load(request: Request) -> tuple[IRModule, Params]:
    try:
        import tflite  # noqa: F401
    except ImportError as error:
        raise missing_extra("tflite", "tflite") from error
    from tvm_quant.frontend.tflite.importer import import_model

    return import_model(request), {}


FRONTEND = Frontend(
    name="tflite",
    reads="a .tflite file or its bytes",
    accepts=_accepts,
    load=_load,
    roundings=tuple(KERNEL_SETS),
)
