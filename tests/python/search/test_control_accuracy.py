import dataclasses
import functools
import importlib

import numpy as np
import pytest
import tvm

from plain_tvm import run_one
from search.conftest import CONFIG, DATA, network
from tvm_quant import AccuracyTarget, control_accuracy, quantize
from tvm_quant.errors import ConfigError, DatasetError
from tvm_quant.report import metric
from tvm_quant.search import AccuracyWarning, Fallback

control = importlib.import_module("tvm_quant.search.control_accuracy")
COARSE = dataclasses.replace(CONFIG, nbit_weight=3, overrides={"left": {"nbit_weight": 2}})
SCORES = np.concatenate([run_one(network(), part) for part in np.split(DATA, 4)])


def controlled(config=COARSE, **fields):
    return control_accuracy(network(), None, DATA, config, target=AccuracyTarget(**fields))


def test_a_network_that_is_good_enough_is_left_alone():
    found = controlled(CONFIG, metric="sqnr", min_score=10)
    assert found.met
    assert found.config == CONFIG
    assert [(step.group, step.kept) for step in found.steps] == [(None, True)]
    assert found.latency_ms == found.steps[0].latency_ms > 0
    tvm.ir.assert_structural_equal(found.module, quantize(network(), None, DATA, CONFIG))


def test_layers_go_back_to_float_until_the_target_is_met():
    found = controlled(metric="sqnr", min_score=45)
    assert found.met
    assert found.steps[0].score < 45 <= found.score
    returned = [step.group for step in found.steps if step.group and step.kept]
    assert found.config.skip == tuple(node for group in returned for node in group.nodes)
    again = quantize(network(), None, DATA, found.config)
    tvm.ir.assert_structural_equal(found.module, again)


def test_quantize_takes_a_target():
    target = AccuracyTarget(metric="sqnr", min_score=1)
    module = quantize(network(), None, DATA, COARSE, accuracy=target)
    tvm.ir.assert_structural_equal(module, quantize(network(), None, DATA, COARSE))


def test_a_target_out_of_reach_gives_the_best_network_and_a_warning():
    with pytest.warns(AccuracyWarning, match=r"not met: .* float has inf, with 1 of 3 groups"):
        found = controlled(CONFIG, metric="sqnr", min_score=1000, fallback="activations_16")
    assert not found.met
    assert len(found.steps) == 4
    assert found.score == max(step.score for step in found.steps)
    assert found.config.skip == ()
    assert {layer.nbit_activation for layer in found.config.overrides.values()} == {16}


def test_validation_data_with_labels_and_a_function():
    labels = SCORES.argmax(1)

    def hits(outputs, given):
        np.testing.assert_array_equal(given, labels)
        return float((outputs[0].argmax(1) == given).mean())

    found = controlled(metric=hits, max_drop=1.0, data={"x": DATA, "label": labels})
    assert found.float_score == 1.0


def test_groups_whose_return_does_harm_are_quantized_again(monkeypatch):
    """A metric that falls with every group given back: each pair is undone, and tried once more."""
    falling = iter(range(100, 0, -1))
    monkeypatch.setattr(
        control, "measure_harm", lambda subject, **_: dict.fromkeys(subject.groups(), 1.0)
    )
    monkeypatch.setattr(control.Validation, "score_of", lambda *_: float(next(falling)))
    monkeypatch.setattr(control.Subject, "quantized", lambda subject, _config: subject.module)
    monkeypatch.setattr(control, "Runner", functools.cache(control.Runner))
    with pytest.warns(AccuracyWarning):
        found = controlled(metric="agreement", max_drop=0)
    found_groups = [step.group.name if step.group else None for step in found.steps]
    assert found_groups == [None, "stem", "left +1", "head", "stem", "left +1"]
    assert found.config == COARSE  # the first was the best
    assert [step.kept for step in found.steps] == [True] + [False] * 5


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "either max_drop or min_score; got max_drop=None and min_score=None"),
        ({"max_drop": 1, "min_score": 1}, "either max_drop or min_score"),
        ({"max_drop": -1}, "max_drop is -1; expected 0 or more"),
        ({"metric": "sqnr", "max_drop": 1}, "SQNR of float is infinite"),
        ({"metric": "f1", "max_drop": 1}, r"metric is 'f1'; expected one of \['top1'"),
        ({"max_drop": 1, "fallback": "half"}, r"fallback is 'half'; expected one of \['float'"),
    ],
)
def test_a_target_that_makes_no_sense_is_an_error(fields, message):
    with pytest.raises(ConfigError, match=message):
        AccuracyTarget(**fields)


def test_labels_are_asked_for():
    with pytest.raises(DatasetError, match="metric 'top1' needs labels"):
        controlled(metric="top1", max_drop=1)


def test_a_drop_is_met_to_the_last_digit():
    target = AccuracyTarget(metric="top1", max_drop=0.1)
    assert target.is_met(score=93.25, reference=93.35)
    assert not target.is_met(score=93.2, reference=93.35)
    assert target.fallback is Fallback.FLOAT
    assert metric("top1").unit == "points"
