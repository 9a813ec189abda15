import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tvm_quant.errors import CalibrationError
from tvm_quant.statistics import TensorStatistics

shapes = st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(1, 6), st.integers(1, 3))


def normal(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@given(shapes, st.integers(1, 3), st.integers(0, 999))
def test_channels_have_the_extremes_and_moments_of_their_slices(shape, axis, seed):
    data = normal(seed, shape)
    channels = TensorStatistics.of(data, samples=shape[0], axis=axis).channels
    others = tuple(i for i in range(4) if i != axis)
    assert_array_equal(channels.minimum, data.min(axis=others))
    assert_array_equal(channels.maximum, data.max(axis=others))
    assert_allclose(channels.mean, data.mean(axis=others, dtype=np.float64), rtol=1e-12, atol=1e-12)
    assert_allclose(channels.variance, data.var(axis=others, dtype=np.float64), atol=1e-12)


@given(shapes, st.integers(0, 999))
def test_each_row_of_a_batch_is_a_sample(shape, seed):
    data = normal(seed, shape)
    stats = TensorStatistics.of(data, samples=shape[0], axis=1)
    assert_array_equal(stats.sample_min, data.reshape(shape[0], -1).min(axis=1))
    assert_array_equal(stats.sample_max, data.reshape(shape[0], -1).max(axis=1))


def test_a_tensor_without_batch_axis_counts_for_every_sample_of_the_batch():
    stats = TensorStatistics.of(np.float32([[-1, 2]]), samples=3)
    assert_array_equal(stats.sample_max, np.float32([2, 2, 2]))


@given(st.lists(st.integers(0, 999), min_size=2, max_size=5))
def test_merged_shards_equal_one_pass_but_for_the_rounding_of_sums(seeds):
    batches = [normal(seed, (2, 3, 4)) for seed in seeds]
    whole = TensorStatistics.of(*batches, samples=2, axis=1)
    merged = TensorStatistics.of(batches[0], samples=2, axis=1)
    for batch in batches[1:]:
        merged = merged.merge(TensorStatistics.of(batch, samples=2, axis=1))
    assert_array_equal(merged.sample_min, whole.sample_min)
    assert_array_equal(merged.sample_max, whole.sample_max)
    assert_array_equal(merged.histogram.bins()[1], whole.histogram.bins()[1])
    assert_array_equal(merged.channels.minimum, whole.channels.minimum)
    assert_allclose(merged.channels.total, whole.channels.total, rtol=1e-12, atol=1e-12)


def test_a_channel_axis_of_varying_length_has_no_channel_statistics():
    stats = TensorStatistics.of(normal(0, (1, 3, 2)), normal(1, (1, 5, 2)), axis=1)
    assert stats.channels is None
    assert stats.samples == 2


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_refused_with_its_sample(bad):
    data = normal(0, (3, 4))
    data[1, 2] = bad
    with pytest.raises(CalibrationError, match="Sample 1 of the batch holds NaN or Inf"):
        TensorStatistics.of(data, samples=3)


@given(st.integers(0, 999), st.integers(1, 500))
def test_dense_bins_hold_all_nonzero_values(seed, bins):
    data = np.maximum(normal(seed, (50, 7)), 0)
    dense = TensorStatistics.of(data).dense(bins, low=0.0)
    assert_allclose(dense.counts.sum(), np.count_nonzero(data))
    assert dense.zeros == data.size - np.count_nonzero(data)
    assert (dense.counts >= 0).all()


def test_dense_bins_agree_with_numpy_within_the_width_of_a_bin():
    data = normal(0, (20, 10_000))
    dense = TensorStatistics.of(data, samples=20).dense(200)
    counts, edges = np.histogram(data.astype(np.float64), bins=200)
    assert_allclose(dense.edges, edges)
    assert np.abs(dense.counts - counts).max() < 0.02 * counts.max()


def test_of_large_samples_some_pixels_are_counted_and_all_extremes():
    data = normal(0, (3, 40, 64, 64))
    data[1, 7, 33, 37] = 1e4  # not counted
    stats = TensorStatistics.of(data, samples=3, axis=1)
    pixels = data.reshape(3, 40, 4096)[:, :, ::3]  # at most 65536 / 40, at an odd stride
    assert stats.count == pixels.size
    assert stats.maximum == 1e4 == stats.channels.maximum[7]
    assert stats.minimum == data.min()
    counted = TensorStatistics.of(pixels, samples=3, axis=1)
    assert_allclose(stats.channels.mean, counted.channels.mean)
    assert_array_equal(stats.histogram.bins()[1], counted.histogram.bins()[1])


def test_many_channels_keep_some_pixels_each():
    data = normal(0, (1, 2048, 7, 7))
    stats = TensorStatistics.of(data, axis=1)
    assert stats.count == 2048 * 17  # every third of 49


@pytest.mark.parametrize("values", [(0, 5), (-5, 0), (-5, 5), (5, 5), (-3, -3), (3, 5), (-5, -3)])
def test_single_values_land_in_the_bins_at_their_place(values):
    data = np.float32(values)
    dense = TensorStatistics.of(data).dense(64, low=-8.0, high=8.0)
    places = np.flatnonzero(dense.counts > 1e-9)
    assert_allclose(dense.counts.sum(), np.count_nonzero(data))
    for value in filter(None, values):
        assert any(abs((place + 0.5) / 4 - 8 - value) <= 0.25 for place in places)


@pytest.mark.parametrize("values", [(0, 5), (-5, 0), (-5, 5), (5, 5), (-5, -5), (-5, -3)])
def test_single_values_at_the_ends_of_the_bins_are_counted(values):
    dense = TensorStatistics.of(np.float32(values)).dense(64, low=-5.0, high=5.0)
    assert_allclose(dense.counts.sum(), np.count_nonzero(values))


def test_magnitudes_are_the_statistics_of_absolute_values():
    batches = [normal(seed, (1, 30)) + shift for seed, shift in enumerate((-5, 0, 5))]
    stats = TensorStatistics.of(*batches).magnitudes()
    expected = TensorStatistics.of(*[np.abs(batch) for batch in batches])
    assert_array_equal(stats.sample_max, expected.sample_max)
    assert_array_equal(stats.histogram.positive.counts, expected.histogram.positive.counts)
    assert (stats.sample_min <= expected.sample_min).all()


def test_no_values_are_no_statistics():
    stats = TensorStatistics.of(np.zeros((1, 0), np.float32))
    assert stats.count == 0
    assert TensorStatistics.of().samples == 0


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.integers(0, 11), st.data())
def test_a_left_out_sample_leaves_the_channel_moments_of_other_groups(sizes, shift, data):
    samples = shift + sum(sizes)
    values = normal(3, (samples, 2, 3))
    out = data.draw(st.integers(0, samples - 1))
    values[out] = 1e4
    parts = np.split(values, np.cumsum([shift, *sizes])[:-1])
    stats = TensorStatistics.of(axis=1)
    merged = None
    for part in parts:
        if len(part):
            stats = TensorStatistics.of(part, samples=len(part), axis=1)
            merged = stats if merged is None else merged.merge(stats)
    kept = np.arange(samples) % 16 != out % 16
    if not kept.any():
        return
    clean = merged.without(np.arange(samples) == out).channels
    assert clean.count == kept.sum() * 3
    assert_array_equal(clean.maximum, values[kept].max(axis=(0, 2)))
    assert_allclose(clean.mean, values[kept].mean(axis=(0, 2), dtype=np.float64), atol=1e-12)
