"""The data sets below `data/`, as `Samples`; images are decoded once and cached."""

from __future__ import annotations

import csv
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tvm_quant.bench.places import Places, UnavailableError
from tvm_quant.bench.samples import Array, Column, InMemory, OnDisk, Samples
from tvm_quant.dataset import Preprocess


class Geometry(Protocol):
    """How images of any size become images of one size; `Preprocess` is one."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values that tell it from others."""

    def __call__(self, images: Array) -> Array:
        """From uint8, (H, W, 3), to (1, H', W', 3) of values 0..255."""


@dataclass(frozen=True, kw_only=True)
class CropThenResize:
    """A square at the centre, size / (size + margin) of the short side, resized bicubic."""

    size: int
    margin: int = 32

    def to_dict(self) -> dict[str, Any]:
        """Plain values that tell it from others."""
        return {"crop_then_resize": [self.size, self.margin]}

    def __call__(self, images: Array) -> Array:
        """From uint8, (H, W, 3), to uint8, (1, size, size, 3)."""
        from PIL import Image

        height, width = images.shape[:2]
        side = round(min(width, height) * self.size / (self.size + self.margin))
        left, top = (width - side + 1) // 2, (height - side + 1) // 2
        resized = Image.fromarray(images).resize(
            (self.size, self.size),
            Image.Resampling.BICUBIC,
            box=(left, top, left + side, top + side),
        )
        return np.asarray(resized)[None]


def arrays(
    path: Path, names: dict[str, str], labels: str | None, prepare: Callable[[Array], Array]
) -> Samples:
    """Samples of an `.npz` file.

    Args:
        path: the file.
        names: {input name: array in the file}.
        labels: array of labels in the file.
        prepare: from stored values to inputs.
    """
    with np.load(path) as file:
        columns = {
            name: Column(stored=InMemory(file[array]), prepare=prepare)
            for name, array in names.items()
        }
        return Samples.all_of(columns, file[labels] if labels else None)


def images(
    places: Places, folder: str, input_name: str, geometry: Geometry, pixels: Preprocess
) -> Samples:
    """Samples of a folder with `images/` and `labels.csv`, in the order of the names; no labels.

    Args:
        places: where to look, and where the cache is.
        folder: below `shared`.
        input_name: of the network.
        geometry: resize and crop; its result is cached as uint8.
        pixels: from uint8 pixels to inputs.
    """
    files = image_files(places.find(folder))
    path = _decoded(places, folder, files, geometry)
    return Samples.all_of({input_name: Column(stored=OnDisk(path), prepare=pixels)}, spaced=True)


def image_files(folder: Path) -> list[Path]:
    """The images of a data set, sorted by name."""
    return sorted((folder / "images").iterdir())


def table(folder: Path) -> list[dict[str, str]]:
    """The rows of `labels.csv`."""
    with (folder / "labels.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def class_labels(folder: Path) -> Array:
    """The class of each image, in the order of the names."""
    classes = {row["file"]: int(row["label"]) for row in table(folder)}
    return np.asarray([classes[path.name] for path in image_files(folder)])


def boxes(folder: Path) -> list[Array]:
    """Per image, in the order of the names: float64, (boxes, 5): class, x0, y0, x1, y1 in 0..1."""
    found: dict[str, list[list[float]]] = {path.name: [] for path in image_files(folder)}
    for row in table(folder):
        x, y, w, h = (float(row[key]) for key in ("cx", "cy", "w", "h"))
        box = [float(row["class"]), x - w / 2, y - h / 2, x + w / 2, y + h / 2]
        found[row["file"]].append(box)
    return [np.asarray(rows, np.float64).reshape(-1, 5) for rows in found.values()]


def _decoded(places: Places, folder: str, files: list[Path], geometry: Geometry) -> Path:
    key = repr((folder, [(path.name, path.stat().st_size) for path in files], geometry.to_dict()))
    digest = hashlib.sha256(key.encode()).hexdigest()[:12]
    target = places.cache / f"{Path(folder).name}-{digest}.npy"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    decoded = [_pixels(path, geometry) for path in files]
    partial = target.with_suffix(f".{os.getpid()}.partial")
    with partial.open("wb") as file:
        np.save(file, np.stack(decoded))
    partial.replace(target)
    return target


def _pixels(path: Path, geometry: Geometry) -> Array:
    try:
        from PIL import Image
    except ImportError:
        raise UnavailableError("images need Pillow: pip install pillow") from None
    with Image.open(path) as image:
        pixels = geometry(np.asarray(image.convert("RGB")))
    return np.asarray(pixels[0], np.uint8)
