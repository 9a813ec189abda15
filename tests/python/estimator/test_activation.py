"""Activation estimators against brute force, and on the tensors that break such methods."""

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from estimator.samples import GRIDS, S8, U8, sqnr_db, tensors
from tvm_quant.estimator import ErrorModel, activation_estimator, scale_zero_point
from tvm_quant.op import QuantSpec
from tvm_quant.statistics import TensorStatistics

SAMPLES = tensors()
SEARCHING = ("kl_divergence", "mse", "norm", "robust")


def statistics(values, samples=1):
    return TensorStatistics.of(np.asarray(values, np.float32), samples=samples)


def quality(name, values, spec, **options):
    """SQNR in dB of the range that an estimator finds."""
    found = activation_estimator(name, {name: options}).range(statistics(values, len(values)), spec)
    return sqnr_db(values, *scale_zero_point(found.low, found.high, spec), spec)


# minmax, moving_average, global_scale ------------------------------------------------------------


@given(st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=9))
def test_minmax_is_the_extremes_and_zero(values):
    found = activation_estimator("minmax").range(statistics(values), U8)
    assert (found.low, found.high) == (min(0.0, *values), max(0.0, *values))


@given(st.lists(st.floats(0, 100, width=32), min_size=1, max_size=9), st.floats(0, 0.99))
def test_moving_average_is_the_recursion(values, momentum):
    stats = statistics(np.array(values)[:, None], samples=len(values))
    estimator = activation_estimator("moving_average", {"moving_average": {"momentum": momentum}})
    expected = values[0]
    for value in values[1:]:
        expected = momentum * expected + (1 - momentum) * value
    assert_allclose(estimator.range(stats, U8).high, expected, rtol=1e-6)


def test_global_scale_needs_no_statistics():
    found = activation_estimator("global_scale").range(None, S8)
    assert (found.low, found.high) == (-8.0, 8.0)


# percentile ---------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 999), st.sampled_from([90.0, 99.0, 99.9, 99.99]))
def test_percentile_leaves_out_its_share_of_the_values_up_to_one_bin(seed, percent):
    values = np.random.default_rng(seed).normal(size=16_000).astype(np.float32)
    estimator = activation_estimator("percentile", {"percentile": {"percentile": percent}})
    share = (1 - percent / 100) * len(values)
    both = estimator.range(statistics(values), U8)
    symmetric = estimator.range(statistics(values), S8)
    for data, end in ((values, both.high), (-values, -both.low), (abs(values), symmetric.high)):
        assert np.sum(data > end * (1 + 2.0**-9)) <= share <= np.sum(data > end * (1 - 2.0**-9)) + 1


def test_percentile_of_few_values_is_the_extreme():
    found = activation_estimator("percentile").range(statistics([-2, 0, 1, 5]), U8)
    assert (found.low, found.high) == (-2.0, 5.0)


def test_percentile_of_mostly_zeros_counts_the_zeros():
    values = np.zeros((10, 10_000))
    values[0, :10] = np.arange(1, 11)
    estimator = activation_estimator("percentile", {"percentile": {"percentile": 99.9}})
    assert estimator.range(statistics(values, samples=10), U8).high == 0.0
    estimator = activation_estimator("percentile", {"percentile": {"percentile": 99.995}})
    assert 5.0 <= estimator.range(statistics(values, samples=10), U8).high < 6.01


# kl_divergence ------------------------------------------------------------------------------------


def brute_force_kl(counts, levels, stop):
    """KL(P || Q) of keeping the bins below `stop`, by the definition."""
    outside = counts[stop:].sum()
    p = counts[:stop].astype(np.float64).copy()
    p[-1] += outside
    q = np.zeros(stop)
    bounds = stop * np.arange(levels + 1) // levels
    for a, b in pairwise(bounds):
        used = p[a:b] > 0
        if used.any():
            q[a:b][used] = counts[a:b].sum() / used.sum()
    if (q[p > 0] == 0).any():
        return np.inf
    p, q = p / p.sum(), q / q.sum()
    return np.sum(p[p > 0] * np.log(p[p > 0] / q[p > 0]))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 999), st.integers(8, 40), st.floats(0.1, 1.0))
def test_kl_divergence_finds_the_minimum_of_the_definition(seed, levels, density):
    from tvm_quant.estimator.kl_divergence import _best_stop

    rng = np.random.default_rng(seed)
    counts = rng.poisson(100 * np.exp(-np.arange(200) / 30)) * (rng.uniform(size=200) < density)
    counts[-1] = 1
    scores = {stop: brute_force_kl(counts, levels, stop) for stop in range(levels, 201)}
    found = _best_stop(counts.astype(np.float64), levels)
    assert scores[found] <= min(scores.values()) + 1e-9


@pytest.mark.parametrize("spec", [U8, S8])
@pytest.mark.parametrize(
    "values",
    [[0.0, 5.0], [5.0, 5.0], [0.0, -5.0], [-5.0, 5.0], [0.001, 5.0], [0, 0.1, 0.1, 0.1, 5]],
)
def test_kl_divergence_keeps_the_extremes_of_sparse_tensors(values, spec):
    found = activation_estimator("kl_divergence").range(statistics(values), spec)
    assert max(-found.low, found.high) == 5.0


def test_kl_divergence_clips_the_tail_of_a_normal_distribution():
    values = np.random.RandomState(0).normal(size=100_000)
    found = activation_estimator("kl_divergence").range(statistics(values), S8)
    assert 3.5 < found.high < 4.5  # extreme: 4.85; MXNet's implementation finds 4.01


def test_kl_divergence_keeps_a_uniform_distribution():
    values = np.random.RandomState(0).uniform(size=100_000)
    found = activation_estimator("kl_divergence").range(statistics(values), U8)
    assert found.high > 0.99


# mse, norm, robust -------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1.0, 4.0])
@pytest.mark.parametrize("kind", ["normal", "silu", "cauchy", "relu", "pixels"])
@pytest.mark.parametrize("spec", [U8, S8, GRIDS["u4"]])
def test_norm_comes_within_five_percent_of_a_full_search(kind, spec, p):
    stats = statistics(SAMPLES[kind])
    model = ErrorModel(stats, p)
    shares = 2.0 ** -np.linspace(0, 8, 33)
    low, high = min(stats.minimum, 0), max(stats.maximum, 0)
    if spec.symmetric:
        reach = max(-low, high)
        lows, highs = -reach * shares, reach * shares
    else:
        lows, highs = (grid.ravel() for grid in np.meshgrid(low * shares, high * shares))
    best = min(
        model.error(*scale_zero_point(part_low, part_high, spec), spec).min()
        for part_low, part_high in zip(
            np.array_split(lows, 10), np.array_split(highs, 10), strict=True
        )
        if len(part_low)
    )
    found = activation_estimator("norm", {"norm": {"p": p}}).range(stats, spec)
    scale, zero_point = scale_zero_point(found.low, found.high, spec)
    assert model.error(scale[None], zero_point[None], spec)[0] <= 1.05 * best + 1e-12


@pytest.mark.parametrize("name", ["mse", "robust"])
@pytest.mark.parametrize("kind", [k for k in SAMPLES if k not in ("zero", "cauchy")])
@pytest.mark.parametrize("spec", [U8, S8])
def test_a_searched_range_is_never_much_worse_than_minmax(kind, name, spec):
    values = SAMPLES[kind]
    assert quality(name, values, spec) >= quality("minmax", values, spec) - 0.3


@pytest.mark.parametrize("name", SEARCHING)
@pytest.mark.parametrize("kind", ["zero_or_five", "constant", "pixels"])
def test_values_that_fit_the_grid_stay_exact(kind, name):
    assert quality(name, SAMPLES[kind], U8) > 100


def test_mse_beats_minmax_on_four_bits():
    spec = QuantSpec(bits=4, signed=False, symmetric=False)
    assert (
        quality("mse", SAMPLES["laplace"], spec) > quality("minmax", SAMPLES["laplace"], spec) + 3
    )


def test_robust_survives_one_outlier_in_one_of_sixteen_samples():
    values = SAMPLES["normal"].copy()
    values[3, 0] = 1e4
    found = activation_estimator("robust").range(statistics(values, 16), U8)
    assert found.dropped == (3,)
    clean = np.delete(values, 3, axis=0)
    assert clean.min() <= found.low and found.high <= clean.max()
    scale, zero_point = scale_zero_point(found.low, found.high, U8)
    assert sqnr_db(clean, scale, zero_point, U8) > 35


def test_robust_drops_nothing_with_too_few_samples():
    for samples in (1, 2, 3):
        values = np.ones((samples, 10))
        values[0, 0] = 1e4
        assert activation_estimator("robust").range(statistics(values, samples), U8).dropped == ()


def test_robust_keeps_what_happens_often():
    values = SAMPLES["normal"].copy()
    values[::5] *= 100  # four of sixteen samples are loud
    assert activation_estimator("robust").range(statistics(values, 16), U8).dropped == ()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 200))
def test_robust_drops_nothing_of_ordinary_samples(seed):
    rng = np.random.default_rng(seed)
    loudness = np.exp2(rng.normal(0, 0.4, (32, 1)))
    values = rng.laplace(size=(32, 200)) * loudness
    assert activation_estimator("robust").range(statistics(values, 32), U8).dropped == ()


@settings(max_examples=5, deadline=None)
@given(st.floats(1e-10, 1e20))
def test_robust_does_not_depend_on_the_unit(factor):
    stats = statistics(SAMPLES["silu"], 16)
    scaled = statistics(SAMPLES["silu"] * np.float32(2.0 ** round(np.log2(factor))), 16)
    first = activation_estimator("robust").range(stats, U8)
    second = activation_estimator("robust").range(scaled, U8)
    assert_allclose(second.high / first.high, 2.0 ** round(np.log2(factor)))


@pytest.mark.parametrize("name", SEARCHING)
def test_a_tensor_takes_milliseconds(name):
    values = np.random.default_rng(0).normal(size=(16, 60_000)).astype(np.float32)
    stats = statistics(values, 16)
    times = []
    for _ in range(3):
        start = time.process_time()
        activation_estimator(name).range(stats, U8)
        times.append(time.process_time() - start)
    assert min(times) < 0.1  # typically 5 to 25 ms
