"""`WORKLOADS`: the networks that are measured, one row each.

Calibration takes the first samples of an `.npz` file, and evenly spaced images of a folder (which
lies sorted by class): never a sample that the evaluation sees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tvm_quant.bench import datasets
from tvm_quant.bench.metrics import FastestDetAp50, Metric, Top1
from tvm_quant.bench.models import edge_folder, efficientnet_lite0
from tvm_quant.bench.places import Places
from tvm_quant.bench.samples import Array, Column, InMemory, Samples
from tvm_quant.dataset import Color, Layout, Preprocess

Load = Callable[[Places], Samples]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A network with the data it is calibrated and measured on.

    Attributes:
        name: as `--only` selects it.
        model: finds the model file.
        calibration: loads samples to calibrate on.
        evaluation: loads samples to measure on.
        metric: what counts; None compares outputs only.
        batch: samples of one run; a fixed batch in the file decides.
        config: fields of `QuantizeConfig` that the row needs whatever is measured.
        bar_db: output SQNR that the row has to reach; None without.
        drop: points of the metric that int8 may lose; None without.
    """

    name: str
    model: Callable[[Places], Path]
    calibration: Load
    evaluation: Load
    metric: Metric | None = None
    batch: int = 1
    config: Mapping[str, Any] = field(default_factory=dict)
    bar_db: float | None = None
    drop: float | None = None


def _file(path: str) -> Callable[[Places], Path]:
    return lambda places: places.find(path)


# CIFAR-10 -----------------------------------------------------------------------

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NORMALIZED = Preprocess(scale=1 / 255, mean=IMAGENET_MEAN, std=IMAGENET_STD)
AS_THEY_ARE = Preprocess()


def _cifar(path: str, pixels: Preprocess) -> Load:
    return lambda places: datasets.arrays(
        places.find(f"data/cifar10/{path}.npz"), {"data": "x"}, "y", pixels
    )


def _cifar_row(name: str, file: str, pixels: Preprocess = NORMALIZED) -> Workload:
    return Workload(
        name=name,
        model=_file(f"models/cifar10/{file}.onnx"),
        calibration=_cifar("cifar10_calib_1000", pixels),
        evaluation=_cifar("cifar10_eval_2000", pixels),
        metric=Top1(),
        drop=0.3,
    )


# Digits -------------------------------------------------------------------------


def _digits(path: str) -> Load:
    return lambda places: datasets.arrays(
        places.find(f"data/mnist/{path}.npz"), {"Input3": "x"}, "y", Preprocess(color=Color.GRAY)
    )


def _spoken(path: str) -> Load:
    return lambda places: datasets.arrays(
        places.find(f"data/fsdd/{path}.npz"), {"data": "x"}, "y", _as_float
    )


def _as_float(raw: Array) -> Array:
    return raw.astype(np.float32)


#: Columns of "zero" to "nine" among the 35 words that the network knows.
SPOKEN_DIGITS = (34, 21, 29, 27, 10, 7, 25, 23, 6, 17)


# ImageNet -----------------------------------------------------------------------

CENTRE = Preprocess(short_side=256, crop=(224, 224), layout=Layout.NHWC)
EFFICIENTNET_CENTRE = datasets.CropThenResize(size=224)
EFFICIENTNET_PIXELS = Preprocess(mean=(127.0,), std=(128.0,))


def _imagenet(folder: str, geometry: datasets.Geometry, pixels: Preprocess) -> Load:
    def load(places: Places) -> Samples:
        found = datasets.images(places, f"data/{folder}", "data", geometry, pixels)
        return found.labelled(datasets.class_labels(places.find(f"data/{folder}")))

    return load


def _imagenet_row(
    name: str,
    model: Callable[[Places], Path],
    geometry: datasets.Geometry = CENTRE,
    pixels: Preprocess = NORMALIZED,
) -> Workload:
    return Workload(
        name=name,
        model=model,
        calibration=_imagenet("imagenet_sample", geometry, pixels),
        evaluation=_imagenet("imagenet_dev500", geometry, pixels),
        metric=Top1(),
        drop=1.0,
    )


# COCO ---------------------------------------------------------------------------

CALIBRATION_IMAGES = "data/coco_det/calib_train2017"
EVALUATION_IMAGES = "data/coco_det/eval_val2017"
PERSON, PERSON_AREA = 0, 0.005


def _coco(
    folder: str,
    name: str,
    size: int,
    pixels: Preprocess,
    labels: Callable[[Path], Any] | None = None,
) -> Load:
    geometry = Preprocess(resize=(size, size), layout=Layout.NHWC)

    def load(places: Places) -> Samples:
        found = datasets.images(places, folder, name, geometry, pixels)
        return found.labelled(labels(places.find(folder))) if labels else found

    return load


def _has_person(folder: Path) -> Array:
    """1 where a person fills more than 0.5 % of the image."""
    largest = [_person_areas(found).max(initial=0) for found in datasets.boxes(folder)]
    return np.asarray([int(area > PERSON_AREA) for area in largest])


def _person_areas(found: Array) -> Array:
    mine = found[found[:, 0] == PERSON]
    return np.asarray((mine[:, 3] - mine[:, 1]) * (mine[:, 4] - mine[:, 2]))


def _coco_row(
    name: str,
    model: str,
    input_name: str,
    size: int,
    pixels: Preprocess,
    labels: Callable[[Path], Any] | None,
    metric: Metric | None,
    drop: float | None,
) -> Workload:
    return Workload(
        name=name,
        model=_file(f"models/{model}.onnx"),
        calibration=_coco(CALIBRATION_IMAGES, input_name, size, pixels),
        evaluation=_coco(EVALUATION_IMAGES, input_name, size, pixels, labels),
        metric=metric,
        drop=drop,
    )


# Small networks with traps --------------------------------------------------------


def _edge(name: str, part: str) -> Load:
    def load(places: Places) -> Samples:
        with np.load(edge_folder(places) / name / f"{part}.npz") as file:
            return Samples.all_of({key: Column(stored=InMemory(file[key])) for key in file.files})

    return load


def _edge_row(name: str, bar_db: float | None, **config: Any) -> Workload:
    return Workload(
        name=f"edge/{name}",
        model=lambda places: edge_folder(places) / name / "model.onnx",
        calibration=_edge(name, "calib"),
        evaluation=_edge(name, "eval"),
        batch=16,
        config=config,
        bar_db=bar_db,
    )


EDGE = (
    _edge_row("baseline", 34),
    _edge_row("dead_channel", 34),
    _edge_row("tiny_w_big_bias", 34),
    _edge_row("nan_in_calib", 34, on_bad="skip"),
    _edge_row("inf_in_calib", 34, on_bad="skip"),
    _edge_row("outlier_calib", 25),
    _edge_row("zero_calib", None, on_zero="warn"),
    _edge_row("one_sample", 20),
    _edge_row("concat_1_vs_100", 25),
    _edge_row("if_subgraph", 25),
    _edge_row("convtranspose_group", 28),
    _edge_row("conv1d", 30),
    _edge_row("transformer_block", 33),
    _edge_row("silu_hardswish", 28),
    _edge_row("shared_weight_bias", 30),
)

_ROWS = (
    _cifar_row("resnet20", "resnet20"),
    _cifar_row("resnet32", "resnet32"),
    _cifar_row("resnet44", "resnet44"),
    _cifar_row("resnet56", "resnet56"),
    _cifar_row("resnet8", "resnet8_mlperf_tiny", AS_THEY_ARE),
    Workload(
        name="mnist",
        model=_file("models/qonnx/mnist-conv/model.onnx"),
        calibration=_digits("mnist_calib_500"),
        evaluation=_digits("mnist_eval_2000"),
        metric=Top1(),
        drop=0.1,
    ),
    Workload(
        name="bc_resnet",
        model=_file("models/audio/bc_resnet_2.onnx"),
        calibration=_spoken("fsdd_calib_240"),
        evaluation=_spoken("fsdd_eval_600"),
        metric=Top1(name="top-1 of 10", columns=SPOKEN_DIGITS),
        drop=0.5,
    ),
    _coco_row(
        "vww",
        "tiny/vww_mobilenetv1_025_96",
        "data",
        96,
        Preprocess(scale=1 / 255),
        _has_person,
        Top1(name="person"),
        None,
    ),
    _imagenet_row("squeezenet", _file("models/imagenet/squeezenet1.1.onnx")),
    _imagenet_row("mobilenetv2", _file("models/imagenet/mobilenetv2_refit.onnx")),
    _imagenet_row(
        "efficientnet-lite0", efficientnet_lite0, EFFICIENTNET_CENTRE, EFFICIENTNET_PIXELS
    ),
    _coco_row(
        "fastestdet",
        "detect/fastestdet_352",
        "input.1",
        352,
        Preprocess(scale=1 / 255, color=Color.BGR),
        datasets.boxes,
        FastestDetAp50(),
        1.0,
    ),
    _coco_row(
        "yunet", "detect/yunet_n_320", "input", 320, Preprocess(color=Color.BGR), None, None, None
    ),
    *EDGE,
)

WORKLOADS: dict[str, Workload] = {row.name: row for row in _ROWS}
