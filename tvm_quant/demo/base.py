"""What a demo is: a network and the data to show it on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm import IRModule

from tvm_quant.dataset import CheckedDataset
from tvm_quant.ir import TensorInfo

Data = tuple[CheckedDataset, CheckedDataset]
"""Samples to calibrate with, and other samples, with labels if there are any, to compare on."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the user asked to see."""

    folder: Path | None
    """Images of the user's own."""

    calibration: int
    """Samples used at most to calibrate."""

    evaluation: int
    """Samples used at most to compare."""


@dataclass(frozen=True, kw_only=True)
class Demo:
    """One network and the data to show it on."""

    name: str
    """What `tvm-quant demo --model` calls it."""

    summary: str
    """One line for the help and the head of the report."""

    load: Callable[[], tuple[IRModule, dict[str, Any]]]
    """Gives the float module and its params."""

    data: Callable[[Sequence[TensorInfo], Request], Data]
    """Opens the data for inputs of that signature."""
