import math

import numpy as np
import pytest

from tvm_quant.bench.contractions import Contraction
from tvm_quant.bench.layer_times import _Call, _matched, layer_times
from tvm_quant.bench.measure import quiet
from tvm_quant.bench.zoo.builder import Builder
from tvm_quant.frontend import load
from tvm_quant.quantize import quantize


def two_branches():
    """Branches with the same shapes, then depthwise, a pool, and dense."""
    net = Builder(size=16)
    x = net.conv("data", 8, 3)
    x = net.concat(net.conv(x, 16, 3), net.conv(x, 16, 1))
    x = net.conv(x, 32, 3, stride=2, groups=32)
    x = net.pool(x, "Max", 3, 2)
    return net.model(net.classify(x, 10))


@pytest.fixture(scope="module")
def rows():
    images = np.random.default_rng(0).normal(size=(4, 3, 16, 16)).astype("float32")
    mod, params = load(two_branches())
    with quiet():
        mod = quantize(mod, params, [{"data": image[None]} for image in images])
    return layer_times(mod, {"data": images[:1]}, rounds=3)


def test_every_layer_is_found_in_order_with_its_operations(rows):
    layers = [row for row in rows if row.operations]
    assert [(row.what, row.output, row.operations) for row in layers] == [
        ("conv 3x3 3 -> 8", (1, 8, 16, 16), 2 * 8 * 256 * 3 * 9),
        ("conv 3x3 8 -> 16", (1, 16, 16, 16), 2 * 16 * 256 * 8 * 9),
        ("conv 1x1 8 -> 16", (1, 16, 16, 16), 2 * 16 * 256 * 8),
        ("depthwise 3x3/2 32", (1, 32, 8, 8), 2 * 32 * 64 * 9),
        ("matmul 32 -> 10", (1, 10), 2 * 32 * 10),
    ]
    names = [node.name for node in two_branches().graph.node]
    assert [row.name for row in layers] == [n for n in names if n.startswith(("conv", "gemm"))]


def test_other_kernels_come_after_the_layers_longest_first(rows):
    others = rows[5:]
    assert not [row.name for row in others if row.operations]
    assert any("max_pool2d" in row.name for row in others)
    assert [row.us for row in others] == sorted((row.us for row in others), reverse=True)


def test_operations_per_second_follow_from_the_time(rows):
    assert all(0 < row.us < 1e6 for row in rows)
    assert rows[0].gops == rows[0].operations / rows[0].us / 1e3


def layer(node, kernel):
    return Contraction(
        node=node,
        what="",
        data=((1, 9, 9, 8),),
        kernel=kernel,
        weight=64 * math.prod(kernel),
        output=(1, 8, 9, 9),
        operations=1,
    )


def call(*packed, batch=1):
    shapes = [(1, 9, 9, 8), packed, (1, 1, 1, 8), (batch, 9, 9, 8)]
    return _Call(kernel="fused_contract1_add", us=1.0, shapes=shapes)


def test_branches_that_run_in_another_order_keep_their_names():
    layers = [layer("a", (1, 1)), layer("b", (3, 1)), layer("c", (1, 3)), layer("d", (1, 3))]
    calls = [call(1, k, j, 4, 8, 2) for k, j in [(1, 3), (3, 1), (1, 3), (1, 1)]]
    assert _matched(calls, layers) == {2: 0, 1: 1, 3: 2, 0: 3}


def test_a_kernel_that_broadcasts_its_output_is_matched_but_not_with_fewer_elements():
    layers = [layer("a", (1, 1))]
    assert _matched([call(1, 1, 1, 4, 8, 2, batch=3)], layers) == {0: 0}
    assert _matched([call(1, 1, 1, 3, 8, 2)], layers) == {}
