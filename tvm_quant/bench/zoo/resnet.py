"""ResNet. Source: He et al., arXiv:1512.03385, table 1; strides in the 3x3 as is common today."""

from __future__ import annotations

import onnx

from tvm_quant.bench.zoo.builder import Builder


def resnet18(size: int = 224) -> onnx.ModelProto:
    """Basic blocks, 1.8 G multiply-adds for images of 224 x 224."""
    return _resnet((2, 2, 2, 2), size, bottleneck=False)


def resnet50() -> onnx.ModelProto:
    """Bottleneck blocks, 4.1 G multiply-adds."""
    return _resnet((3, 4, 6, 3), 224, bottleneck=True)


def _resnet(depths: tuple[int, ...], size: int, *, bottleneck: bool) -> onnx.ModelProto:
    net = Builder(size=size)
    x = net.pool(net.conv("data", 64, 7, stride=2), "Max", 3, 2)
    for stage, depth in enumerate(depths):
        for index in range(depth):
            stride = 2 if stage and not index else 1
            x = _block(net, x, 64 << stage, stride, bottleneck=bottleneck)
    return net.model(net.classify(x))


def _block(net: Builder, x: str, width: int, stride: int, *, bottleneck: bool) -> str:
    outputs = 4 * width if bottleneck else width
    if bottleneck:
        y = net.conv(net.conv(x, width, 1), width, 3, stride=stride)
        y = net.conv(y, outputs, 1, activation=None)
    else:
        y = net.conv(net.conv(x, width, 3, stride=stride), width, 3, activation=None)
    if stride > 1 or net.channels(x) != outputs:
        x = net.conv(x, outputs, 1, stride=stride, activation=None)
    return net.add(y, x, "Relu")
