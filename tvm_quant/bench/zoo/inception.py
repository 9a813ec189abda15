"""Inception-v3. Source: Szegedy et al., arXiv:1512.00567, table 1, in torchvision's layout."""

from __future__ import annotations

import onnx

from tvm_quant.bench.zoo.builder import Builder

WIDE, TALL = (1, 7), (7, 1)
POOL_OUTPUTS = (32, 64, 64)  # of the blocks at 35x35
WIDTHS = (128, 160, 160, 192)  # of the blocks at 17x17


def inception_v3() -> onnx.ModelProto:
    """Branches with kernels of many shapes, 5.7 G multiply-adds; without the auxiliary head."""
    net = Builder(size=299)
    x = net.conv(net.conv("data", 32, 3, stride=2, padded=False), 32, 3, padded=False)
    x = _shrinking_pool(net, net.conv(x, 64, 3))
    x = _shrinking_pool(net, net.conv(net.conv(x, 80, 1), 192, 3, padded=False))
    for outputs in POOL_OUTPUTS:
        x = _block_35(net, x, outputs)
    x = _to_17(net, x)
    for width in WIDTHS:
        x = _block_17(net, x, width)
    x = _to_8(net, x)
    for _ in range(2):
        x = _block_8(net, x)
    return net.model(net.classify(x))


def _block_35(net: Builder, x: str, pool_outputs: int) -> str:
    one = net.conv(x, 64, 1)
    five = net.conv(net.conv(x, 48, 1), 64, 5)
    threes = net.conv(net.conv(net.conv(x, 64, 1), 96, 3), 96, 3)
    return net.concat(one, five, threes, _pool_branch(net, x, pool_outputs))


def _to_17(net: Builder, x: str) -> str:
    three = net.conv(x, 384, 3, stride=2, padded=False)
    threes = net.conv(net.conv(x, 64, 1), 96, 3)
    threes = net.conv(threes, 96, 3, stride=2, padded=False)
    return net.concat(three, threes, _shrinking_pool(net, x))


def _block_17(net: Builder, x: str, width: int) -> str:
    one = net.conv(x, 192, 1)
    seven = net.conv(net.conv(net.conv(x, width, 1), width, WIDE), 192, TALL)
    sevens = net.conv(x, width, 1)
    for kernel in (TALL, WIDE, TALL):
        sevens = net.conv(sevens, width, kernel)
    sevens = net.conv(sevens, 192, WIDE)
    return net.concat(one, seven, sevens, _pool_branch(net, x, 192))


def _to_8(net: Builder, x: str) -> str:
    three = net.conv(net.conv(x, 192, 1), 320, 3, stride=2, padded=False)
    seven = net.conv(net.conv(net.conv(x, 192, 1), 192, WIDE), 192, TALL)
    seven = net.conv(seven, 192, 3, stride=2, padded=False)
    return net.concat(three, seven, _shrinking_pool(net, x))


def _block_8(net: Builder, x: str) -> str:
    one = net.conv(x, 320, 1)
    three = _both_ways(net, net.conv(x, 384, 1))
    threes = _both_ways(net, net.conv(net.conv(x, 448, 1), 384, 3))
    return net.concat(one, *three, *threes, _pool_branch(net, x, 192))


def _both_ways(net: Builder, x: str) -> tuple[str, str]:
    return net.conv(x, 384, (1, 3)), net.conv(x, 384, (3, 1))


def _pool_branch(net: Builder, x: str, outputs: int) -> str:
    return net.conv(net.pool(x, "Average", 3, 1), outputs, 1)


def _shrinking_pool(net: Builder, x: str) -> str:
    return net.pool(x, "Max", 3, 2, padded=False)
