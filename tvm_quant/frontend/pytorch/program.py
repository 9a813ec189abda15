"""From what the user holds to a `torch.export.ExportedProgram`."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from tvm_quant.errors import FrontendError
from tvm_quant.frontend.base import Request, first_line
from tvm_quant.frontend.pytorch.quantized import register_operators


def exported_program(request: Request) -> torch.export.ExportedProgram:
    """The program to import; a module is exported in inference mode and left as it was.

    Raises:
        FrontendError: a damaged file, a module without example inputs or that cannot be exported.
    """
    if request.shapes:
        raise FrontendError(
            "'shapes' does not apply to PyTorch; the shapes are those of the example inputs, or "
            "what torch.export.export(..., dynamic_shapes=...) was given."
        )
    source = request.source
    if isinstance(source, torch.export.ExportedProgram):
        return source
    if isinstance(source, torch.nn.Module):
        return _export(source, request.example_inputs)
    try:
        with _quiet():
            register_operators()
            return torch.export.load(str(source))
    except Exception as error:
        raise FrontendError(
            f"{source} cannot be read as an exported program: {first_line(error)}. Write it with "
            "torch.export.save(torch.export.export(model, example_inputs), path)."
        ) from error


def _export(module: torch.nn.Module, example_inputs: Any) -> torch.export.ExportedProgram:
    name = type(module).__name__
    if example_inputs is None:
        raise FrontendError(
            f"The torch.nn.Module '{name}' needs example_inputs=(tensor, ...) to be traced with."
        )
    arguments, keywords = _arguments(example_inputs)
    try:
        with _inference_mode(module), _quiet():
            return torch.export.export(module, arguments, keywords)
    except Exception as error:
        raise FrontendError(
            f"torch.export cannot trace '{name}': {first_line(error)}. Make the control flow "
            "independent of the data, or export the model to ONNX."
        ) from error


def _arguments(example_inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example_inputs, Mapping):
        return (), {name: _as_tensor(value) for name, value in example_inputs.items()}
    if isinstance(example_inputs, torch.Tensor | np.ndarray):
        example_inputs = (example_inputs,)
    return tuple(_as_tensor(value) for value in example_inputs), {}


def _as_tensor(value: Any) -> Any:
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


@contextmanager
def _quiet() -> Iterator[None]:
    """Without PyTorch's logs: what matters of a failure stands in the error."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextmanager
def _inference_mode(module: torch.nn.Module) -> Iterator[None]:
    modes = {child: child.training for child in module.modules()}
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for child, mode in modes.items():
            child.training = mode
