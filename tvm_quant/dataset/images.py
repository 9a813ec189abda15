"""A folder of images, decoded one at a time.

DIR/*.jpg                       or DIR/images/*.jpg; other depths work as well
DIR/labels.csv                  optional, columns file and label (an integer)
DIR/<class>/*.jpg               without labels.csv: the label is the class's place in sorted order
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tvm_quant.dataset.bind import RawBatch
from tvm_quant.dataset.image_file import decode
from tvm_quant.dataset.source import DatasetWarning, Request, image_input
from tvm_quant.errors import DatasetError

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"})


def is_folder(source: Any, _request: Request) -> bool:
    """Any other path; that it is a folder is checked at opening."""
    return isinstance(source, (str, Path))


def open_folder(source: str | Path, request: Request) -> ImageFolder:
    """List the files and read the labels.

    Raises:
        DatasetError: no folder, no images, no preprocessing spec, or an unreadable labels.csv.
    """
    root = Path(source)
    if not root.exists():
        raise DatasetError(f"there is no file or folder {root}")
    if not root.is_dir():
        raise DatasetError(
            f"{root} is no data this package reads; give an .npz file or a folder of images"
        )
    files = sorted(path for path in root.rglob("*") if _is_image(path))
    if not files:
        raise DatasetError(f"folder {root} holds no images ({', '.join(sorted(SUFFIXES))})")
    if request.preprocess is None:
        raise DatasetError(
            f"folder {root} holds images, and how the network wants them is not known: give a "
            "preprocessing spec (tvm_quant.dataset.Preprocess, or --preprocess FILE.yaml) with "
            "resize, crop, scale, mean, std, color and layout"
        )
    return ImageFolder(root, files, image_input(request).name, _labels(root, files))


@dataclass
class ImageFolder:
    """Images in the order of their names; with a limit, evenly spaced ones.

    A folder often lies sorted by class, and then its first images would all show the same thing.
    """

    root: Path
    files: list[Path]
    input_name: str
    labels: dict[Path, int]
    keeps_batches: bool = False

    @property
    def description(self) -> str:
        """Name of the folder and number of images."""
        return f"folder {self.root.name} ({len(self.files)} images)"

    def batches(self, limit: int | None) -> Iterator[RawBatch]:
        """One image each, uint8, (1, H, W, 3)."""
        for path in self._chosen(limit):
            label = self.labels.get(path)
            yield RawBatch(
                arrays={self.input_name: decode(path)[None]},
                labels=None if label is None else np.asarray([label]),
                where=f"image {path.relative_to(self.root)}",
            )

    def _chosen(self, limit: int | None) -> list[Path]:
        if limit is None or limit >= len(self.files):
            return self.files
        places = np.linspace(0, len(self.files), limit, endpoint=False).astype(int)
        return [self.files[place] for place in places]


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def _labels(root: Path, files: list[Path]) -> dict[Path, int]:
    """{image: class}, empty where the folder gives none or several for an image (object boxes)."""
    table = root / "labels.csv"
    if table.is_file():
        return _labels_from_csv(table, files)
    folders = sorted({path.parent for path in files})
    if len(folders) > 1 and all(folder.parent == root for folder in folders):
        return {path: folders.index(path.parent) for path in files}
    return {}


def _labels_from_csv(table: Path, files: list[Path]) -> dict[Path, int]:
    try:
        with table.open(newline="", encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(f"cannot read {table}: {error}") from error
    if not rows or not {"file", "label"} <= set(rows[0]):
        return {}
    by_name = {row["file"]: row["label"] for row in rows}
    if len(by_name) < len(rows):
        return {}
    labels = {}
    for path in files:
        text = by_name.get(path.name, by_name.get(path.relative_to(table.parent).as_posix()))
        if text is not None:
            labels[path] = _label(text, path, table)
    if 0 < len(labels) < len(files):
        missing = next(path for path in files if path not in labels)
        warnings.warn(
            f"{table} has no row for {len(files) - len(labels)} of {len(files)} images, such as "
            f"{missing.name}: its labels are not used",
            DatasetWarning,
            stacklevel=2,
        )
        return {}
    return labels


def _label(text: str, path: Path, table: Path) -> int:
    if text.strip().lstrip("-").isdigit():
        return int(text)
    raise DatasetError(f"{table}: the label of {path.name} is {text!r}, expected an integer")
