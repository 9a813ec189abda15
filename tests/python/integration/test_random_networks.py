"""Random small networks, from float to integers: what has to hold for every one of them."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings

from layers import compare, sqnr_db, with_taps
from plain_tvm import run
from random_networks import random_networks
from tvm_quant.config import QuantizeConfig
from tvm_quant.hardware import HARDWARE
from tvm_quant.statistics import Statistics, TensorStatistics
from tvm_quant.transform import Annotate, CalibrateActivations, CalibrateWeights
from tvm_quant.transform.quantizers import quantizers

#: (bits of activations, bits of weights): the SQNR in dB that every network has to reach.
EXPECTED_DB = {(8, 8): 20.0, (16, 8): 25.0, (6, 6): 8.0}


def calibrate(network, config):
    """The calibrated network, ranges as wide as the data, and the float results."""
    annotated = Annotate(config)(network.mod)
    found = [quantizer for quantizer in quantizers(annotated["main"]) if quantizer.source]
    values = run(with_taps(annotated, cut=False), *network.inputs)
    results, taps = values[: len(values) - len(found)], values[len(values) - len(found) :]
    samples = len(network.inputs[0])
    statistics = Statistics(
        {
            quantizer.source: TensorStatistics.of(tap, samples=samples)
            for quantizer, tap in zip(found, taps, strict=True)
        },
        samples=samples,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a tensor of zeros is a fair network
        mod = CalibrateActivations(statistics, config)(CalibrateWeights(config)(annotated))
    return mod, results


def check(network, **config):
    bits = config.get("nbit_activation", 8), config.get("nbit_weight", 8)
    config = QuantizeConfig(activation_estimator="minmax", on_zero="warn", **config)
    calibrated, results = calibrate(network, config)
    compared = compare(calibrated, *network.inputs)
    steps = np.concatenate([[0], *(np.abs(s).ravel() for s in compared.steps.values())])
    assert steps.max() < 1.01, f"more than one step apart: {network!r}"
    assert np.count_nonzero(steps > 0.5) <= 2 + 0.01 * steps.size, f"many steps apart: {network!r}"
    for integer, simulated, real in zip(compared.integers, compared.given, results, strict=True):
        assert np.isfinite(integer).all()
        assert sqnr_db(simulated, integer) > 50, f"far from the simulation: {network!r}"
        assert sqnr_db(real, integer) > EXPECTED_DB[bits], f"far from float: {network!r}"


@given(network=random_networks())
@settings(max_examples=15, derandomize=True)
def test_integers_follow_the_simulation_and_float(network):
    check(network)


@pytest.mark.parametrize("hardware", sorted(set(HARDWARE) - {"x86_vnni"}))
@given(network=random_networks(max_steps=5))
@settings(max_examples=2, derandomize=True)
def test_on_every_hardware_row(hardware, network):
    check(network, hardware=hardware)


@pytest.mark.parametrize("bits", sorted(set(EXPECTED_DB) - {(8, 8)}))
@given(network=random_networks(max_steps=5))
@settings(max_examples=3, derandomize=True)
def test_other_widths(bits, network):
    check(network, nbit_input=bits[0], nbit_activation=bits[0], nbit_weight=bits[1])


@given(network=random_networks(max_steps=5))
@settings(max_examples=3, derandomize=True)
def test_one_scale_a_tensor(network):
    check(network, per_channel=False)
