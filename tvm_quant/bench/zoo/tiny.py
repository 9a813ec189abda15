"""Two networks of MLPerf Tiny; the other two are like `mobilenet_v1` and a small ResNet.

Source: Banbury et al., arXiv:2106.07597, section 4; the reference models of MLPerf Tiny v1.0.
"""

from __future__ import annotations

import onnx

from tvm_quant.bench.zoo.builder import Builder

HIDDEN = (128, 128, 128, 128, 8, 128, 128, 128, 128)


def keyword_spotting() -> onnx.ModelProto:
    """DS-CNN: depthwise separable convolutions over 49 frames of 10 coefficients, 12 words."""
    net = Builder(shape=(1, 1, 49, 10))
    x = net.conv("data", 64, (10, 4), stride=2)
    for _ in range(4):
        x = net.conv(net.conv(x, 64, 3, groups=64), 64, 1)
    return net.model(net.classify(x, 12))


def anomaly_detection() -> onnx.ModelProto:
    """An autoencoder of dense layers for 5 frames of 128 mel bands."""
    net, x = Builder(shape=(1, 640)), "data"
    for outputs in HIDDEN:
        x = net.dense(x, outputs, "Relu")
    return net.model(net.dense(x, 640))
