"""`kl_symmetric`: the thresholds of the old stack, without its faults."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimator.old_thresholds import THRESHOLDS, tensors
from estimator.samples import S8, U8
from tvm_quant.estimator import activation_estimator
from tvm_quant.estimator.kl_symmetric import SMOOTHING, _best_half, _divergences
from tvm_quant.op import QuantSpec
from tvm_quant.statistics import TensorStatistics

KL = activation_estimator("kl_symmetric")
#: Where the old stack was wrong, or clipped what holds many values: a test of its own each.
FAULTS = {"halves", "zeros", "mostly_zero", "relu6", "pixels"}


def statistics(values, parts=10):
    return TensorStatistics.of(*np.array_split(np.float32(values), parts))


def threshold(values, spec=S8):
    found = KL.range(statistics(values), spec)
    return max(-found.low, found.high)


def divergence(counts, levels, half):
    """KL(P || Q) of the window of `half` bins around the middle, by the definition."""
    middle = len(counts) // 2
    first, end = middle - half, middle + half + 1
    inside = counts[first:end].copy()
    inside[0] = 0
    p = inside.copy()
    p[0] = counts[: first + 1].sum()
    p[-1] += counts[end:].sum()
    width = len(p) // levels
    q = np.zeros(len(p))
    for level in range(levels):
        group = slice(level * width, (level + 1) * width if level + 1 < levels else len(p))
        used = np.count_nonzero(inside[group])
        if used:
            q[group] = np.where(p[group] > 0, inside[group].sum() / used, 0)
    if not q.any():
        return np.inf
    total = q.sum()
    q[q == 0] = SMOOTHING
    seen = p > 0
    return np.sum(p[seen] * np.log(p[seen] / p.sum() / (q[seen] / total))) / p.sum()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 999), st.sampled_from([3, 7, 15, 31]), st.floats(0.05, 1.0))
def test_divergences_are_those_of_the_definition(seed, levels, density):
    rng = np.random.default_rng(seed)
    spread = 30 * np.exp(-np.abs(np.arange(-60, 61)) / 15)
    counts = (rng.poisson(spread) * (rng.uniform(size=121) < density)).astype(float)
    counts[60] += 1
    halves = np.arange(levels // 2, 61)
    wanted = np.array([divergence(counts, levels, half) for half in halves])
    np.testing.assert_allclose(_divergences(counts, levels, halves), wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", sorted(set(THRESHOLDS) - FAULTS))
def test_thresholds_are_within_a_bin_of_those_of_old(name):
    values = tensors()[name]
    width = 2 * np.abs(values).max() / 8001
    assert abs(threshold(values) - THRESHOLDS[name]) <= 1.01 * width


def test_windows_found_on_streamed_counts_are_as_good_as_the_best_on_exact_ones():
    values = tensors()
    for name in sorted(set(THRESHOLDS) - FAULTS):
        reach = np.abs(values[name]).max()
        counts, edges = np.histogram(values[name], bins=8001, range=(-reach, reach))
        half = np.searchsorted(edges, threshold(values[name]) * (1 - 1e-6)) - 4001
        best = _best_half(counts.astype(float), 255)
        found, least = _divergences(counts.astype(float), 255, np.array([half, best]))
        assert found <= 1.03 * least, name


def test_whole_numbers_are_clipped_by_less_than_half_a_step():
    pixels = tensors()["pixels"]
    assert 255 - threshold(pixels) < 0.5 * 255 / 127
    assert 255 - THRESHOLDS["pixels"] < 0.5 * 255 / 127


@pytest.mark.parametrize("name", ["halves", "mostly_zero", "relu6"])
def test_at_most_one_nonzero_value_in_a_thousand_is_clipped(name):
    values = tensors()[name]
    values = values[values != 0]
    assert np.mean(np.abs(values) > threshold(tensors()[name])) <= 0.001
    assert np.mean(np.abs(values) > THRESHOLDS[name] * (1 + 1e-6)) > 0.02  # the old stack


@pytest.mark.parametrize("spec", [U8, S8])
@pytest.mark.parametrize(
    "values",
    [[0.0, 5.0], [5.0, 5.0], [0.0, -5.0], [-5.0, 5.0], [0.001, 5.0], [0, 0.1, 0.1, 0.1, 5]],
)
def test_sparse_tensors_keep_their_extremes(values, spec):
    found = KL.range(statistics(values, 1), spec)
    assert max(-found.low, found.high) == 5.0


@pytest.mark.parametrize("values", [[0.0], [1e-20, -1e-20], []])
def test_tensors_without_values_that_count_keep_their_extremes(values):
    found = KL.range(statistics(values, 1), S8)
    assert (found.low, found.high) == (
        np.float32(min(values, default=0)),
        np.float32(max(values, default=0)),
    )


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999), st.integers(-16, 30), st.sampled_from([S8, U8]))
def test_thresholds_scale_with_the_values_and_stay_within_them(seed, power, spec):
    values = np.random.default_rng(seed).laplace(size=2000)  # down to 2**-21; below 2**-40 is zero
    once, scaled = threshold(values, spec), threshold(values * 2.0**power, spec)
    assert scaled == once * 2.0**power
    assert 0 < once <= np.abs(np.float32(values)).max()


def test_order_and_shards_of_the_samples_do_not_matter():
    values = np.random.default_rng(0).normal(size=20_000)
    merged = statistics(values[12_000:]).merge(statistics(values[:12_000]))
    assert KL.range(merged, S8) == KL.range(statistics(values, 7), S8)


def test_ranges_end_where_the_data_ends():
    positive = np.abs(np.random.default_rng(0).normal(size=20_000))
    found = KL.range(statistics(positive), U8)
    assert found.low == 0.0 and 3.0 < found.high <= positive.max()
    found = KL.range(statistics(-positive), QuantSpec(signed=False))  # no negative codes
    assert (found.low, found.high) == (0.0, 0.0)


def test_fine_grids_cover_the_extremes():
    values = np.random.default_rng(0).normal(size=20_000)
    assert threshold(values, QuantSpec(bits=16, narrow=True)) == np.abs(np.float32(values)).max()
