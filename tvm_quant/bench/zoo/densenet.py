"""DenseNet-121. Source: Huang et al., arXiv:1608.06993, table 1."""

from __future__ import annotations

import onnx

from tvm_quant.bench.zoo.builder import Builder

GROWTH = 32
DEPTHS = (6, 12, 24, 16)


def densenet121() -> onnx.ModelProto:
    """Every layer reads all before it, 2.9 G multiply-adds; batch norms before layers left out."""
    net = Builder()
    x = net.pool(net.conv("data", 64, 7, stride=2), "Max", 3, 2)
    for stage, depth in enumerate(DEPTHS):
        for _ in range(depth):
            x = net.concat(x, net.conv(net.conv(x, 4 * GROWTH, 1), GROWTH, 3))
        if stage < len(DEPTHS) - 1:
            x = net.conv(x, net.channels(x) // 2, 1)
            x = net.pool(x, "Average", 2, 2, padded=False)
    return net.model(net.classify(x))
