"""The embedded network: handwritten digits, trained by scripts/train_digits.py.

Images and labels are those of scikit-learn's `load_digits` (UCI "Optical Recognition of Handwritten
Digits" by E. Alpaydin and C. Kaynak, CC BY 4.0). Evaluation images come from writers of whom no
image was used in training or calibration.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import IRModule

from tvm_quant import frontend
from tvm_quant.dataset import as_dataset
from tvm_quant.demo.base import Data, Demo, Request
from tvm_quant.errors import DatasetError
from tvm_quant.ir import TensorInfo

HERE = Path(__file__).parent
WHITE = 16
"""Largest pixel value of the stored images; the network wants 0 to 1."""


def model_path() -> Path:
    """ONNX file of the float network: image float32 (N, 1, 8, 8) in [0, 1] to logits (N, 10)."""
    return HERE / "digits.onnx"


def calibration_data() -> npt.NDArray[np.float32]:
    """256 training images, float32, (256, 1, 8, 8), in [0, 1].

    >>> calibration_data().shape
    (256, 1, 8, 8)
    """
    return _scaled("calibration_images")


def evaluation_data() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """600 held-out images, float32, (600, 1, 8, 8), in [0, 1], and the digits they show, (600,).

    >>> images, labels = evaluation_data()
    >>> images.shape, int(labels.max())
    ((600, 1, 8, 8), 9)
    """
    return _scaled("evaluation_images"), _array("evaluation_labels").astype(np.int64)


def _load() -> tuple[IRModule, dict[str, Any]]:
    return frontend.load(model_path())


def _data(signature: Sequence[TensorInfo], request: Request) -> Data:
    if request.folder is not None:
        raise DatasetError("demo 'digits' brings its own images; leave --data out")
    return (
        as_dataset(calibration_data(), signature, limit=request.calibration),
        as_dataset([evaluation_data()], signature, limit=request.evaluation),
    )


def _scaled(name: str) -> npt.NDArray[np.float32]:
    return _array(name).astype(np.float32) / np.float32(WHITE)


def _array(name: str) -> npt.NDArray[np.uint8]:
    with np.load(HERE / "digits.npz") as arrays:
        stored: npt.NDArray[np.uint8] = arrays[name]
    return stored


DEMO = Demo(
    name="digits",
    summary="residual and depthwise CNN for handwritten digits, part of this package",
    load=_load,
    data=_data,
)
