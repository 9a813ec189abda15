from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

from tvm_quant.statistics import FloatHistogram
from tvm_quant.statistics.histogram import TINY

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
arrays = hnp.arrays(np.float32, hnp.array_shapes(max_dims=3, max_side=9), elements=finite)


def assert_same(first: FloatHistogram, second: FloatHistogram) -> None:
    assert first.zeros == second.zeros
    for a, b in ((first.positive, second.positive), (first.negative, second.negative)):
        assert_array_equal(a.edges(), b.edges())
        assert_array_equal(a.counts, b.counts)


@given(arrays)
def test_every_value_lies_in_its_bin(values):
    edges, counts = FloatHistogram.of(values).bins()
    values = values.ravel().astype(np.float64)
    kept = values[np.abs(values) >= TINY]
    positive, negative = kept[kept > 0], kept[kept < 0]
    expected = [
        np.sum((positive >= low) & (positive < high))
        + np.sum((negative > low) & (negative <= high))
        for low, high in pairwise(edges)
        if 1 < len(edges) < 5000
    ]
    assert counts.sum() == kept.size
    if expected:
        assert_array_equal(counts, expected)


@given(arrays, arrays, arrays)
def test_merging_is_counting_everything_in_any_order_and_grouping(a, b, c):
    whole = FloatHistogram.of(np.concatenate([a.ravel(), b.ravel(), c.ravel()]))
    x, y, z = map(FloatHistogram.of, (a, b, c))
    assert_same(x.merge(y).merge(z), whole)
    assert_same(x.merge(y.merge(z)), whole)
    assert_same(z.merge(x).merge(y), whole)


@given(arrays)
def test_counts_add_up(values):
    histogram = FloatHistogram.of(values)
    assert histogram.total == values.size
    assert histogram.zeros == np.sum(np.abs(values) < TINY)
    assert_same(histogram.magnitudes(), FloatHistogram.of(np.abs(values)))


def test_bins_are_a_thousandth_of_their_octave_wide():
    edges, _ = FloatHistogram.of(np.float32([1.0, 1.999])).bins()
    assert_array_equal(np.diff(edges), np.full(len(edges) - 1, 2.0**-10))


def test_one_outlier_costs_no_resolution():
    values = np.random.default_rng(0).normal(size=5000).astype(np.float32)
    clean = FloatHistogram.of(values).positive
    with_outlier = FloatHistogram.of(np.append(values, np.float32(1e4))).positive
    assert_array_equal(with_outlier.counts[: len(clean.counts)], clean.counts)


def test_an_empty_histogram_merges_as_nothing():
    empty, some = FloatHistogram.of(np.zeros(0, np.float32)), FloatHistogram.of(np.float32([-2, 3]))
    assert_same(empty.merge(some), some)
    assert_same(some.merge(empty), some)
    assert empty.bins()[1].size == 0


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_counting_in_blocks_changes_nothing(seed):
    values = np.random.default_rng(seed).normal(size=140_000).astype(np.float32)
    parts = [FloatHistogram.of(part) for part in np.array_split(values, 7)]
    merged = parts[0]
    for part in parts[1:]:
        merged = merged.merge(part)
    assert_same(merged, FloatHistogram.of(values))
