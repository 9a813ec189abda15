"""From a TFLite flatbuffer to a Relax module, with the names of its tensors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import tflite
import tvm
from tvm import IRModule
from tvm.relax.frontend.tflite import from_tflite

from tvm_quant.errors import FrontendError, TvmQuantError
from tvm_quant.frontend.base import Request, first_line
from tvm_quant.frontend.tflite.converter import Converter
from tvm_quant.frontend.tflite.kernels import kernel_set
from tvm_quant.frontend.tflite.quantized import QuantizedConverter, is_quantized
from tvm_quant.frontend.tflite.verify import verify


def import_model(request: Request) -> IRModule:
    """The module of the first subgraph; weights are constants.

    Raises:
        ConfigError: no kernel set of the name that `request.rounding` gives.
        FrontendError: a damaged file, or an operator that has no conversion.
        UnsupportedError: a quantized tensor or operator that has no form here.
    """
    kernels = kernel_set(request.rounding)
    model = _read(request.source)
    converters: list[Converter] = []

    def converter(*args: Any, **kwargs: Any) -> Converter:
        chosen: Callable[..., Converter] = Converter
        if is_quantized(model):
            chosen = partial(QuantizedConverter, kernels)
        converters.append(chosen(*args, **kwargs))
        return converters[-1]

    shapes = {name: tuple(shape) for name, shape in (request.shapes or {}).items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            mod = from_tflite(model, shape_dict=shapes or None, op_converter=converter)
        except TvmQuantError:
            raise
        except (tvm.error.OpNotImplemented, NotImplementedError) as error:
            raise FrontendError(
                f"The TFLite model cannot be converted: {first_line(error)}. Export the network "
                "with other operators, or export it to ONNX (tf2onnx)."
            ) from error
        except Exception as error:
            raise FrontendError(
                f"The TFLite model is damaged or of a kind that is not read: {first_line(error)}"
            ) from error
    main = mod["main"].without_attr("params")  # they are constants of the function as well
    mod["main"] = main
    return converters[0].names.attach(mod)


def _read(source: object) -> tflite.Model:
    data = source if isinstance(source, bytes) else Path(str(source)).read_bytes()
    if data[4:8] != b"TFL3":
        raise FrontendError(f"{source!s:.80} is no TFLite model: the identifier TFL3 is missing.")
    return verify(data)
