import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tvm_quant.statistics import TensorStatistics, join_spreads
from tvm_quant.statistics.spread import BINS_PER_OCTAVE


def normal(seed, shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def spread_of(*batches, samples=1, axis=1):
    return TensorStatistics.of(*batches, samples=samples, axis=axis).channels.spread


def weight_of(data):
    """Of each sample, (N, 1, 1): the power of two nearest to the inverse of its energy."""
    energy = np.square(data, dtype="float64").sum(axis=(1, 2), keepdims=True)
    return 2.0 ** np.round(-np.log2(energy))


def whole(spread, factors=None, gains=None, low=-1.0, high=1.0):
    ones = np.ones(len(spread.weights))
    factors, gains = (ones if a is None else np.asarray(a, float) for a in (factors, gains))
    return spread.scaled(factors, gains, low, high)


def weight_below(values, weights, ends):
    return np.array([weights[values < end].sum() for end in ends])


@given(st.integers(0, 999), st.lists(st.floats(1, 50), min_size=3, max_size=3))
def test_a_scaled_tensor_has_its_values_where_they_are_within_a_bin(seed, factors):
    data, gains = normal(seed, (2, 3, 40)), np.array([1.0, 0.5, 2.0])
    edges, below = whole(spread_of(data, samples=2), factors, gains).cumulative()
    weights = np.broadcast_to(gains[:, None] * weight_of(data), data.shape)
    scaled = data * np.asarray(factors)[:, None]
    ends = np.linspace(-3, 3, 13)
    found = np.interp(ends, edges, below)
    width = 1 + 1 / BINS_PER_OCTAVE + 1e-6
    nearer, farther = ends / width, ends * width
    lower = weight_below(scaled, weights, np.minimum(nearer, farther))
    upper = weight_below(scaled, weights, np.maximum(nearer, farther))
    assert (found >= lower - 1e-6).all()
    assert (found <= upper + 1e-6).all()
    assert_allclose(below[-1], weights.sum(), rtol=1e-5)


@given(st.floats(2**-10, 2**10), st.integers(0, 999))
def test_a_loud_sample_weighs_as_much_as_a_silent_one(loudness, seed):
    """Of the energy of each sample about 1 is counted, whatever it is."""
    data = normal(seed, (1, 2, 30))
    loud = np.float32(loudness) * data
    spread = spread_of(np.concatenate([data, loud]), samples=2)
    edges, below = whole(spread).cumulative()
    centres = (edges[1:] + edges[:-1]) / 2
    counted = (np.diff(below) * centres**2).sum()
    both = np.concatenate([data, loud])
    assert_allclose(counted, (np.square(both) * weight_of(both)).sum(), rtol=0.05)
    assert 2**-0.5 - 0.05 < counted / 2 < 2**0.5 + 0.05


@given(st.lists(st.integers(0, 999), min_size=2, max_size=5))
def test_merged_shards_equal_one_pass_bit_for_bit(seeds):
    batches = [normal(seed, (2, 3, 20)) * np.float32(2.0) ** (seed % 14 - 7) for seed in seeds]
    merged = spread_of(batches[0], samples=2)
    for batch in batches[1:]:
        merged = merged.merge(spread_of(batch, samples=2))
    one_pass = spread_of(*batches, samples=2)
    assert merged.start == one_pass.start
    assert_array_equal(merged.weights, one_pass.weights)


def test_joined_tensors_have_the_channels_of_both():
    left, right = spread_of(normal(0, (1, 2, 9))), spread_of(64 * normal(1, (1, 3, 9)))
    joined = join_spreads([left, right])
    assert joined.weights.shape[0] == 5
    for spread, gains in ((left, [1, 1, 0, 0, 0]), (right, [0, 0, 1, 1, 1])):
        edges, below = whole(spread).cumulative()
        alone = np.diff(below) / spread.mean_weight
        both = np.interp(edges, *whole(joined, gains=gains).cumulative())
        assert_allclose(np.diff(both), alone, atol=1e-6)


def test_a_quiet_tensor_does_not_outweigh_a_loud_one_that_it_is_joined_with():
    quiet = normal(0, (1, 2, 9))
    joined = join_spreads([spread_of(quiet), spread_of(4096 * quiet)])
    totals = joined.weights.sum(axis=(1, 2))
    assert_array_equal(totals[:2], totals[2:])
    assert 0.7 < totals.mean() < 1.5


def test_zeros_have_no_weight_and_join_the_rest():
    silent = spread_of(np.zeros((1, 2, 9), np.float32))
    assert silent.weights.shape == (2, 2, 0)
    edges, below = whole(silent).cumulative()
    assert_array_equal(below, np.zeros(len(edges)))
    loud = spread_of(normal(0, (1, 2, 9)))
    assert_array_equal(silent.merge(loud).weights, loud.weights)
    assert_array_equal(loud.merge(silent).weights, loud.weights)
    joined = join_spreads([silent, loud]).weights
    assert_array_equal(joined[2:] * loud.mean_weight, loud.weights)
    assert not joined[:2].any()


@pytest.mark.parametrize("shape", [(1, 3, 112, 112), (1, 112, 112, 3), (1, 3, 65), (1, 3, 7, 7)])
def test_large_maps_are_thinned_and_keep_their_energy(shape):
    axis = 3 if shape[-1] == 3 and len(shape) == 4 else 1
    data = np.ones(shape, np.float32)
    weights = spread_of(data, axis=axis).weights
    assert 2**-0.5 < weights.sum() < 2**0.5
    assert_array_equal(weights.sum(axis=(1, 2)), weights.sum() / 3)
