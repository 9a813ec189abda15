"""Reading image files with Pillow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tvm_quant.dataset.arrays import Array
from tvm_quant.errors import DatasetError


def pillow() -> Any:
    """The module `PIL.Image`.

    Raises:
        DatasetError: Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise DatasetError(
            "reading or resizing images needs Pillow, which is not installed: pip install pillow"
        ) from error
    return Image


def decode(path: Path) -> Array:
    """Read one image file as uint8, (H, W, 3), RGB.

    Raises:
        DatasetError: not an image, or truncated.
    """
    pil = pillow()
    try:
        with pil.open(path) as image:
            return np.asarray(image.convert("RGB"))
    except Exception as error:
        raise DatasetError(f"cannot decode the image {path}: {error}") from error
