"""Well-known networks with random weights: good enough to measure time. One row each in `ZOO`."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from tvm_quant.bench.zoo.densenet import densenet121
from tvm_quant.bench.zoo.inception import inception_v3
from tvm_quant.bench.zoo.mobilenet import mobilenet_v1, mobilenet_v2, mobilenet_v3_large
from tvm_quant.bench.zoo.resnet import resnet18, resnet50
from tvm_quant.bench.zoo.tiny import anomaly_detection, keyword_spotting

ZOO: dict[str, Callable[[], onnx.ModelProto]] = {
    "resnet18": resnet18,
    "resnet50": resnet50,
    "mobilenet_v1": mobilenet_v1,
    "mobilenet_v2": mobilenet_v2,
    "mobilenet_v3_large": mobilenet_v3_large,
    "densenet121": densenet121,
    "inception_v3": inception_v3,
    "keyword_spotting": keyword_spotting,
    "anomaly_detection": anomaly_detection,
}

__all__ = ["ZOO"]
