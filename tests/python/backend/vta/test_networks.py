"""Whole networks, quantized with the row of VTA: what it takes, and the same bits as the CPU."""

from functools import cache

import numpy as np
import pytest

import tvm_quant
import vta_networks as nets
from tvm_quant import QuantizeConfig, Runner
from tvm_quant.backend.vta.partition import Part, partition
from tvm_quant.bench.measure import Scale, Subject
from tvm_quant.bench.places import Places
from tvm_quant.bench.workloads import WORKLOADS
from tvm_quant.bench.zoo.resnet import resnet18
from vta_oracle import partitioned

CONFIG = QuantizeConfig(hardware="vta", weight_rounding="nearest", bias_correction="none")


@cache
def small_resnet18():
    mod, params = tvm_quant.load(resnet18(32))
    rng = np.random.default_rng(0)
    images = rng.standard_normal((6, 1, 3, 32, 32), np.float32)
    int8 = tvm_quant.quantize(mod, params, [{"data": image} for image in images], CONFIG)
    return int8, {"data": images[0]}


def parts_of(mod):
    return [piece for piece in partition(mod["main"]) if isinstance(piece, Part)]


def assert_equal_on_both(mod, *batches):
    cpu = Runner(mod)
    expected = [cpu.run(inputs) for inputs in batches]
    for other in (Runner(partitioned(mod)), Runner(mod, "vta")):
        for inputs, outputs in zip(batches, expected, strict=True):
            for found, wanted in zip(other.run(inputs), outputs, strict=True):
                np.testing.assert_array_equal(found, wanted)


def test_resnet18_is_one_region_up_to_its_classifier():
    mod, inputs = small_resnet18()
    (part,) = parts_of(mod)
    kinds = [type(layer).__name__ for layer in part.region.layers]
    assert (kinds.count("Convolution"), kinds.count("MaxPool")) == (21, 1)  # with the mean
    assert sum(getattr(layer, "residual", None) is not None for layer in part.region.layers) == 8
    after = nets.operators(partitioned(mod))
    assert [name for name in after if "conv" in name or "pool" in name] == []
    assert_equal_on_both(mod, inputs)


@pytest.mark.parametrize("name", ["mnist", "resnet8", "resnet20"])
def test_networks_with_trained_weights_are_one_region(name, shared):
    subject = Subject(WORKLOADS[name], Places.default(), Scale(calibration=16, evaluation=4))
    mod = subject.quantize(CONFIG)
    assert len(parts_of(mod)) == 1
    assert_equal_on_both(mod, *subject.evaluation.batches(subject.batch))
