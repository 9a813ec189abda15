"""The probe, against whole networks."""

import numpy as np
import pytest

from plain_tvm import run
from search.conftest import DATA, network
from tvm_quant.search import Subject
from tvm_quant.search.probe import Probe
from tvm_quant.search.slices import Slicer, layer_ends
from tvm_quant.transform import Prepare
from tvm_quant.transform.simulate import Simulate

LAYERS = ["stem", "left", "right", "head"]


@pytest.fixture(scope="module")
def calibrated(subject):
    return subject.calibrated(subject.config, weights=True)


def slices(subject, calibrated, **kept):
    slicer = Slicer(subject.module, calibrated, **kept)
    return {(layer, "Q"): slicer.slice(layer) for layer in LAYERS}


def test_slices_read_what_is_float_in_the_float_network(subject, calibrated):
    found = slices(subject, calibrated, activations=True, weights=True)
    ends = {layer: one.end for (layer, _), one in found.items()}
    assert ends == layer_ends(subject.module)
    assert ends["stem"] == "bias"  # with its bias
    assert [one.reads for one in found.values()] == [("x",), ("relu",), ("relu",), ("mean",)]


def test_nothing_replaced_is_the_float_network(subject, calibrated):
    probe = Probe(subject.module, slices(subject, calibrated, activations=True, weights=True))
    known = probe.float_run({"x": DATA[:2]})
    exact = run(network(), DATA[:2])[0]
    np.testing.assert_allclose(probe.outputs(known)[0], exact, rtol=1e-5)
    assert probe.variant_run(known, {}) == {}
    assert probe.outputs({}, known)[0].shape == (2, 5)


def test_layers_without_quantizers_change_nothing(subject, calibrated):
    """Slices with all quantizers left out: the float layers, but for the corrected biases."""
    mod = subject.calibrated(subject.config, weights=False)
    probe = Probe(subject.module, slices(subject, mod, activations=False, weights=False))
    known = probe.float_run({"x": DATA[:2]})
    changed = probe.variant_run(known, dict.fromkeys(LAYERS, "Q"))
    np.testing.assert_allclose(probe.outputs(changed, known)[0], probe.outputs(known)[0], rtol=1e-4)


def test_only_what_depends_on_a_layer_runs_again(subject, calibrated):
    probe = Probe(subject.module, slices(subject, calibrated, activations=True, weights=True))
    known = probe.float_run({"x": DATA[:2]})
    changed = probe.variant_run(known, {"left": "Q"})
    assert "left" in changed
    assert not {"bias", "relu", "right"} & set(changed)
    assert probe.output in changed


def test_all_layers_replaced_is_nearly_the_simulated_network():
    subject = Subject(network(), None, DATA)
    calibrated = subject.calibrated(subject.config, weights=True)
    probe = Probe(subject.module, slices(subject, calibrated, activations=True, weights=True))
    known = probe.float_run({"x": DATA[:2]})
    changed = probe.variant_run(known, dict.fromkeys(LAYERS, "Q"))
    close = probe.outputs(changed, known)[0]
    simulated = run(Simulate()(calibrated), DATA[:2])[0]
    exact = run(Prepare()(network()), DATA[:2])[0]
    assert np.abs(close - simulated).max() < np.abs(exact - simulated).max()
