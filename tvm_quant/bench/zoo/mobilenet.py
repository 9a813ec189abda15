"""MobileNet, three generations.

Source: Howard et al., arXiv:1704.04861, table 1; Sandler et al., arXiv:1801.04381, table 2;
Howard et al., arXiv:1905.02244, table 1 (large).
"""

from __future__ import annotations

import onnx

from tvm_quant.bench.zoo.builder import Builder

V1 = (
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    *[(512, 1)] * 5,
    (1024, 2),
    (1024, 1),
)

# expansion, outputs, repeats, stride
V2 = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)

# kernel, expanded, outputs, squeeze-and-excite, activation, stride
V3 = (
    (3, 16, 16, False, "Relu", 1),
    (3, 64, 24, False, "Relu", 2),
    (3, 72, 24, False, "Relu", 1),
    (5, 72, 40, True, "Relu", 2),
    (5, 120, 40, True, "Relu", 1),
    (5, 120, 40, True, "Relu", 1),
    (3, 240, 80, False, "HardSwish", 2),
    (3, 200, 80, False, "HardSwish", 1),
    (3, 184, 80, False, "HardSwish", 1),
    (3, 184, 80, False, "HardSwish", 1),
    (3, 480, 112, True, "HardSwish", 1),
    (3, 672, 112, True, "HardSwish", 1),
    (5, 672, 160, True, "HardSwish", 2),
    (5, 960, 160, True, "HardSwish", 1),
    (5, 960, 160, True, "HardSwish", 1),
)


def mobilenet_v1() -> onnx.ModelProto:
    """Depthwise separable convolutions, 0.57 G multiply-adds."""
    net = Builder()
    x = net.conv("data", 32, 3, stride=2)
    for outputs, stride in V1:
        x = net.conv(x, net.channels(x), 3, stride=stride, groups=net.channels(x))
        x = net.conv(x, outputs, 1)
    return net.model(net.classify(x))


def mobilenet_v2() -> onnx.ModelProto:
    """Inverted residuals, 0.30 G multiply-adds."""
    net = Builder()
    x = net.conv("data", 32, 3, stride=2, activation="Relu6")
    for expansion, outputs, repeats, first in V2:
        for index in range(repeats):
            expanded = expansion * net.channels(x)
            stride = first if not index else 1
            x = _inverted(net, x, expanded, outputs, kernel=3, stride=stride, activation="Relu6")
    return net.model(net.classify(net.conv(x, 1280, 1, activation="Relu6")))


def mobilenet_v3_large() -> onnx.ModelProto:
    """Hard swish, and squeeze and excite, 0.22 G multiply-adds."""
    net = Builder()
    x = net.conv("data", 16, 3, stride=2, activation="HardSwish")
    for kernel, expanded, outputs, squeezes, activation, stride in V3:
        x = _inverted(
            net,
            x,
            expanded,
            outputs,
            kernel=kernel,
            stride=stride,
            activation=activation,
            squeezes=squeezes,
        )
    x = net.global_pool(net.conv(x, 960, 1, activation="HardSwish"))
    return net.model(net.classify(net.conv(x, 1280, 1, activation="HardSwish")))


def _inverted(
    net: Builder,
    x: str,
    expanded: int,
    outputs: int,
    *,
    kernel: int,
    stride: int,
    activation: str,
    squeezes: bool = False,
) -> str:
    y = net.conv(x, expanded, 1, activation=activation) if expanded != net.channels(x) else x
    y = net.conv(y, expanded, kernel, stride=stride, groups=expanded, activation=activation)
    if squeezes:
        gate = net.conv(net.global_pool(y), expanded // 4, 1)
        y = net.multiply(y, net.conv(gate, expanded, 1, activation="HardSigmoid"))
    y = net.conv(y, outputs, 1, activation=None)
    return net.add(y, x) if stride == 1 and net.channels(x) == outputs else y
