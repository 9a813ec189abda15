"""Preprocess: how an image becomes an input tensor, as data that a YAML file can hold.

The steps run in this order, and a step whose field is unset does nothing:

    resize (or short side) -> centre crop -> colour order -> * scale -> - mean -> / std -> layout
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from tvm_quant.dataset.arrays import Array
from tvm_quant.dataset.fields import member, numbers, size
from tvm_quant.dataset.image_file import pillow
from tvm_quant.errors import DatasetError


class Color(str, Enum):
    """Order of the colour channels that the model was trained with."""

    RGB = "RGB"
    BGR = "BGR"  # OpenCV's order
    GRAY = "GRAY"  # one channel, ITU-R 601 luma


class Layout(str, Enum):
    """Order of the axes of the model's input."""

    NCHW = "NCHW"
    NHWC = "NHWC"


class Interpolation(str, Enum):
    """Filter of the resize; values are the names of Pillow's filters."""

    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    LANCZOS = "lanczos"
    BOX = "box"


@dataclass(frozen=True, kw_only=True)
class Preprocess:
    """What the network's authors did to an image before the first layer.

    >>> cifar = Preprocess(scale=1 / 255, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    >>> cifar(np.zeros((2, 32, 32, 3), np.uint8)).shape
    (2, 3, 32, 32)
    """

    resize: tuple[int, int] | None = None
    """(height, width) in pixels, the aspect ratio is not kept; one number means a square."""

    short_side: int | None = None
    """Length in pixels of the shorter side after a resize that keeps the aspect ratio."""

    crop: tuple[int, int] | None = None
    """(height, width) in pixels of a crop at the centre; one number means a square."""

    interpolation: Interpolation = Interpolation.BILINEAR
    """Filter of `resize` and `short_side`."""

    color: Color = Color.RGB
    """Channel order of the result."""

    scale: float = 1.0
    """Factor on the values 0..255, before mean and std: 1/255 for networks fed with 0..1."""

    mean: tuple[float, ...] = (0.0,)
    """Subtracted per channel after `scale`, in the result's channel order; one value for all."""

    std: tuple[float, ...] = (1.0,)
    """Divisor per channel after `mean`; in the channel order of the result, one value for all."""

    layout: Layout = Layout.NCHW
    """Axis order of the result."""

    input: str | None = None
    """Name of the model input that gets the images; may be left out where there is one input."""

    array: str | None = None
    """Name of the array of images in an `.npz`; with it, other arrays of the file are ignored."""

    def __post_init__(self) -> None:
        for name, enum in (("interpolation", Interpolation), ("color", Color), ("layout", Layout)):
            object.__setattr__(self, name, member(enum, getattr(self, name), name))
        for name in ("resize", "crop"):
            object.__setattr__(self, name, size(getattr(self, name), name))
        for name in ("mean", "std"):
            object.__setattr__(self, name, numbers(getattr(self, name), name))
        object.__setattr__(self, "scale", numbers(self.scale, "scale")[0])
        if self.short_side is not None:
            object.__setattr__(self, "short_side", (size(self.short_side, "short_side") or (0,))[0])
        if self.resize and self.short_side:
            raise DatasetError(
                "preprocessing: 'resize' and 'short_side' exclude each other; give one"
            )
        if 0.0 in self.std:
            raise DatasetError(f"preprocessing: 'std' is {self.std}; a divisor cannot be 0")
        channels = 1 if self.color is Color.GRAY else 3
        for name in ("mean", "std"):
            if len(getattr(self, name)) not in (1, channels):
                raise DatasetError(
                    f"preprocessing: '{name}' has {len(getattr(self, name))} values, expected 1 or "
                    f"{channels} for color {self.color.value}"
                )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "preprocessing") -> Preprocess:
        """Build from plain values, as a YAML file gives them.

        Raises:
            DatasetError: an unknown field or a value out of range.
        """
        known = [field.name for field in fields(cls)]
        unknown = [str(name) for name in values if name not in known]
        if unknown:
            raise DatasetError(
                f"{where}: unknown field {', '.join(map(repr, unknown))}; the fields are "
                f"{', '.join(known)}"
            )
        return cls(**values)

    @classmethod
    def from_yaml(cls, path: str | Path) -> Preprocess:
        """Read a YAML file whose keys are the fields of this class.

        A fraction such as `1/255` may stand for a number.

        Raises:
            DatasetError: no such file, no YAML, or a wrong field.
        """
        import yaml

        try:
            values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise DatasetError(
                f"cannot read the preprocessing file {path}: {error.strerror}"
            ) from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise DatasetError(f"{path} is not a YAML file: {error}") from error
        if not isinstance(values, Mapping):
            raise DatasetError(
                f"{path} holds no fields; a preprocessing file reads like 'crop: 224'"
            )
        return cls.from_dict(values, str(path))

    def to_dict(self) -> dict[str, Any]:
        """Plain values (str, numbers, lists) of the fields that are set."""
        plain: dict[str, Any] = {}
        for name, value in asdict(self).items():
            if value is None:
                continue
            if isinstance(value, Enum):
                value = value.value
            plain[name] = list(value) if isinstance(value, tuple) else value
        return plain

    def __call__(self, images: Array) -> Array:
        """Apply the steps.

        Args:
            images: (H, W), (H, W, C) one image or (N, H, W, C), (N, H, W) a batch; C is 1, 3 or 4
                in RGB order; 0..255. Only uint8 images can be resized.

        Returns:
            float32, (N, C, H', W') or (N, H', W', C); N is 1 for one image.

        Raises:
            DatasetError: not an image.
        """
        batch = _as_batch(images)
        return np.stack([self._one(image) for image in batch])

    def _one(self, image: Array) -> Array:
        if self.resize or self.short_side:
            image = self._resized(image)
        pixels = self._colors(_center_crop(image, self.crop))
        pixels = pixels * np.float32(self.scale)
        pixels = (pixels - np.asarray(self.mean, np.float32)) / np.asarray(self.std, np.float32)
        if self.layout is Layout.NCHW:
            pixels = pixels.transpose(2, 0, 1)
        return np.ascontiguousarray(pixels, np.float32)

    def _resized(self, image: Array) -> Array:
        if image.dtype != np.uint8:
            raise DatasetError(
                f"preprocessing: images of dtype {image.dtype} cannot be resized; give uint8 "
                "images or data of the right size"
            )
        height, width = image.shape[:2]
        if self.resize:
            new_height, new_width = self.resize
        else:
            side = self.short_side or 0
            new_height = side if height <= width else round(height * side / width)
            new_width = side if width <= height else round(width * side / height)
        pil = pillow()
        picture = pil.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)
        method = pil.Resampling[self.interpolation.name]
        resized = np.asarray(picture.resize((new_width, new_height), method))
        return resized if resized.ndim == 3 else resized[:, :, None]

    def _colors(self, image: Array) -> Array:
        """(H, W, 1 | 3 | 4) in RGB to (H, W, C) float32 in the model's order."""
        pixels = image[:, :, :3].astype(np.float32)
        if self.color is Color.GRAY:
            luma = np.asarray([0.299, 0.587, 0.114], np.float32)
            return pixels if pixels.shape[2] == 1 else (pixels @ luma)[:, :, None]
        if pixels.shape[2] == 1:
            pixels = np.repeat(pixels, 3, axis=2)
        return pixels[:, :, ::-1] if self.color is Color.BGR else pixels


def _as_batch(images: Array) -> Array:
    if images.ndim == 2:
        return images[None, :, :, None]
    if images.ndim == 3 and images.shape[2] in (1, 3, 4):
        return images[None]
    if images.ndim == 3:
        return images[..., None]
    if images.ndim == 4 and images.shape[3] in (1, 3, 4):
        return images
    raise DatasetError(
        f"preprocessing: an array of shape {tuple(images.shape)} holds no images; expected (N, H, "
        "W, C) or (N, H, W) with C = 1, 3 or 4. Data that is already in the model's form needs no "
        "preprocessing"
    )


def _center_crop(image: Array, crop: tuple[int, int] | None) -> Array:
    if crop is None:
        return image
    height, width = image.shape[:2]
    if height < crop[0] or width < crop[1]:
        raise DatasetError(
            f"preprocessing: an image of {height} x {width} pixels is smaller than the crop of "
            f"{crop[0]} x {crop[1]}; set 'resize' or 'short_side'"
        )
    top, left = round((height - crop[0]) / 2), round((width - crop[1]) / 2)
    return image[top : top + crop[0], left : left + crop[1]]
