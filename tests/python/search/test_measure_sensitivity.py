"""Sensitivities, against networks that are really quantized so."""

import dataclasses
import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

from plain_tvm import run
from search.conftest import CONFIG, DATA, network
from tvm_quant import QuantizeConfig
from tvm_quant.errors import ConfigError, DatasetError
from tvm_quant.report import metric, sqnr_db
from tvm_quant.search import FLOAT, Choice, Subject, measure_sensitivity
from tvm_quant.search.configure import configure
from tvm_quant.search.measure_sensitivity import measure_harm

W2, W8 = Choice(weight_bits=2), Choice(weight_bits=8)


@pytest.fixture(scope="module")
def sensitivity(subject):
    return measure_sensitivity(subject, weight_bits=(2, 8))


def test_every_group_has_a_loss_for_every_choice(subject, sensitivity):
    assert list(sensitivity.groups) == subject.groups()
    assert sensitivity.samples == len(DATA)
    for losses in sensitivity.losses:
        assert set(losses) == {W2, W8, FLOAT}
        assert 0 == losses[FLOAT] < losses[W8] < losses[W2]


def test_a_loss_is_the_noise_of_a_network_with_that_group_alone(subject, sensitivity):
    """Quantized with 16-bit inputs and everything else in float, which the probe leaves out."""
    exact = outputs(subject.module)
    for group, losses in zip(sensitivity.groups, sensitivity.losses, strict=True):
        others = {other: FLOAT for other in sensitivity.groups if other != group}
        config = configure(
            dataclasses.replace(subject.config, nbit_activation=16, nbit_input=16),
            others | {group: W2},
        )
        close = outputs(subject.quantized(config))
        assert -10 * np.log10(losses[W2]) == pytest.approx(sqnr_db(exact, close), abs=0.05)


def outputs(mod):
    return np.concatenate([run(mod, part)[0] for part in np.split(DATA, 4)])


def test_bits_of_weights_and_of_inputs_add_up(subject, sensitivity):
    both = measure_sensitivity(subject, weight_bits=(2,), activation_bits=(4, 8))
    four, eight = (Choice(weight_bits=2, activation_bits=bits) for bits in (4, 8))
    for losses, alone in zip(both.losses, sensitivity.losses, strict=True):
        assert set(losses) == {FLOAT, four, eight}
        assert losses[four] > losses[eight] > alone[W2]


def test_harm_is_that_of_weights_and_inputs_as_configured():
    config = dataclasses.replace(CONFIG, nbit_weight=4, overrides={"stem": {"nbit_weight": 2}})
    four = Subject(network(), None, DATA, config)
    whole, inputs = (measure_harm(four, weights=weights, samples=8) for weights in (True, False))
    assert list(whole) == list(inputs) == four.groups()
    assert all(whole[group] > inputs[group] > 0 for group in whole)
    assert max(whole, key=whole.__getitem__).name == "stem"


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_workers_change_no_bit(subject, sensitivity, kind):
    if kind == "threads":
        executor = ThreadPoolExecutor(2)
    else:
        executor = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
    with executor:
        shared = Subject(network(), None, DATA, subject.config, executor=executor)
        assert measure_sensitivity(shared, weight_bits=(2, 8)) == sensitivity


def test_dask_workers_change_no_bit(subject, sensitivity):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        shared = Subject(network(), None, DATA, subject.config, executor=client.get_executor())
        assert measure_sensitivity(shared, weight_bits=(2, 8)) == sensitivity


def test_a_metric_can_count_instead_of_noise(subject):
    found = measure_sensitivity(subject, weight_bits=(2, 8), metric=metric("agreement"))
    for losses in found.losses:
        assert 0 == losses[FLOAT] <= losses[W8] <= losses[W2] <= 100


def test_a_function_as_metric_sees_all_samples(subject):
    def mean_first(outputs, labels):
        assert outputs[0].shape == (len(DATA), 5)
        assert labels is None
        return float(outputs[0][:, 0].mean())

    found = measure_sensitivity(subject, weight_bits=(8,), metric=metric(mean_first))
    assert all(abs(losses[W8]) < 0.1 for losses in found.losses)


def test_labels_are_asked_for_before_any_work(subject):
    with pytest.raises(DatasetError, match=r"metric 'top1' needs labels, and .* has none"):
        measure_sensitivity(subject, weight_bits=(8,), metric=metric("top1"))


def test_nothing_to_search_is_an_error():
    config = QuantizeConfig(skip=("relax.nn.conv2d", "relax.matmul"))
    empty = Subject(network(), None, DATA, config)
    with (
        pytest.warns(UserWarning, match="Nothing was quantized"),
        pytest.raises(ConfigError, match="There is nothing to search: every layer"),
    ):
        measure_sensitivity(empty, weight_bits=(8,))


def test_results_can_be_pickled(sensitivity):
    assert pickle.loads(pickle.dumps(sensitivity)) == sensitivity
