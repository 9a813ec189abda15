import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_quant.errors import ConfigError
from tvm_quant.search import assign

LOSS = st.floats(0, 1e3, allow_subnormal=False)
GROUP = st.lists(st.tuples(LOSS, st.integers(1, 50)), min_size=1, max_size=4)


def total(table, chosen):
    return sum(group[index] for group, index in zip(table, chosen, strict=True))


@settings(deadline=None, max_examples=60)
@given(st.lists(GROUP, min_size=1, max_size=5), st.floats(0, 1))
def test_no_other_choice_within_the_limit_loses_less(groups, share):
    losses = [[loss for loss, _ in group] for group in groups]
    costs = [[cost for _, cost in group] for group in groups]
    low, high = sum(map(min, costs)), sum(map(max, costs))
    limit = low + share * (high - low)
    chosen = assign(losses, costs, limit)
    assert total(costs, chosen) <= limit + 1e-9
    best = min(
        total(losses, other)
        for other in itertools.product(*(range(len(group)) for group in groups))
        if total(costs, other) <= limit
    )
    assert total(losses, chosen) == pytest.approx(best, rel=1e-9, abs=1e-9)


def test_losses_of_any_size_are_told_apart():
    assert assign([[2e-9, 1e-9], [3e-9, 0.0]], [[1, 2], [1, 2]], 3) == [0, 1]
    assert assign([[0.0, 0.0]], [[1, 0]], 0) == [1]


def test_a_limit_below_the_cheapest_choices_is_an_error():
    with pytest.raises(
        ConfigError, match=r"budget is 3, but the cheapest choice of every group costs 4 together"
    ):
        assign([[1.0], [1.0, 2.0]], [[1], [3, 4]], 3)
