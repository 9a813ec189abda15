"""Comparing statistics to the bit."""

from numpy.testing import assert_array_equal

from tvm_quant.statistics import Statistics


def assert_same_statistics(first: Statistics, second: Statistics, *, sums: bool = True) -> None:
    """Compare everything, or everything but the rounded sums of channels."""
    assert list(first) == list(second)
    assert (first.samples, first.fingerprint) == (second.samples, second.fingerprint)
    for a, b in zip(first.values(), second.values(), strict=True):
        assert a.histogram.zeros == b.histogram.zeros
        for side in ("positive", "negative"):
            assert getattr(a.histogram, side).start == getattr(b.histogram, side).start
            assert_array_equal(getattr(a.histogram, side).counts, getattr(b.histogram, side).counts)
        assert_array_equal(a.sample_min, b.sample_min)
        assert_array_equal(a.sample_max, b.sample_max)
        assert (a.channels is None) == (b.channels is None)
        if a.channels and b.channels:
            assert (a.channels.axis, a.channels.samples) == (b.channels.axis, b.channels.samples)
            for field in (
                "counts",
                "lows",
                "highs",
                *(("totals", "squares_by_group") if sums else ()),
            ):
                assert_array_equal(getattr(a.channels, field), getattr(b.channels, field))
            if sums:
                assert a.channels.spread.start == b.channels.spread.start
                assert_array_equal(a.channels.spread.weights, b.channels.spread.weights)
