import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_quant.config import MergeRule
from tvm_quant.hardware import Grid, grids
from tvm_quant.placement.compatible import makes_redundant, may_requantize
from tvm_quant.placement.merge import merge


def outcome(rule, *branches):
    found = merge(rule, [grids(branch) for branch in branches])
    return " ".join(map(str, found.grids)), found.kept


@pytest.mark.parametrize(
    ("branches", "never", "same", "requantize", "common"),
    [
        (("8SN", "8SN"), "", "8SN", "8SN", "8SN"),
        (("8AN 4SN", "4SN 8AN"), "", "8AN 4SN", "8AN 4SN", "8AN 4SN"),
        (("8AN 4SN", "8SC"), "", "", "8AN", ""),
        (("8SN", "8AN"), "", "", "8AN", ""),
        (("16SN 8SN", "8SN"), "", "", "8SN 16SN", "8SN"),
    ],
)
def test_rules(branches, never, same, requantize, common):
    found = {rule: outcome(rule, *branches)[0] for rule in MergeRule}
    assert found == {
        MergeRule.NEVER: never,
        MergeRule.SAME: same,
        MergeRule.REQUANTIZE: requantize,
        MergeRule.COMMON: common,
    }


def test_a_branch_keeps_its_own_only_where_the_merged_list_is_not_its_list():
    assert outcome(MergeRule.REQUANTIZE, "8AN", "8AN 4SN", "8SC") == ("8AN", (False, True, True))
    assert outcome(MergeRule.COMMON, "8AN", "8AN 4SN") == ("8AN", (False, False))
    assert outcome(MergeRule.SAME, "8AN", "4SN") == ("", (True, True))


GRID = st.builds(
    Grid,
    bits=st.sampled_from([4, 8, 16]),
    symmetric=st.booleans(),
    per_channel=st.booleans(),
    signed=st.sampled_from([None, True]),
    narrow=st.just(False),
)
BRANCH = st.lists(GRID, min_size=1, max_size=3, unique=True).map(tuple)


@given(st.sampled_from(MergeRule), st.lists(BRANCH, min_size=1, max_size=4))
def test_the_order_of_branches_does_not_matter(rule, branches):
    first = merge(rule, branches)
    for order in itertools.permutations(range(len(branches))):
        found = merge(rule, [branches[index] for index in order])
        assert found.grids == first.grids
        assert found.kept == tuple(first.kept[index] for index in order)


@given(st.lists(BRANCH, min_size=1, max_size=4))
def test_every_branch_can_live_below_what_requantizing_merges(branches):
    found = merge(MergeRule.REQUANTIZE, branches)
    for upper in found.grids:
        for branch in branches:
            assert upper in branch or all(may_requantize(lower, upper) for lower in branch)


@pytest.mark.parametrize(
    ("lower", "uppers"),
    [
        ("8SN", "8SN 8AN 8SC 16SN"),
        ("8AN", "8AN 8AC"),
        ("4SN", "4SN 8SN 8AN 4AN"),
        ("8SNu", "8SNu 8SNs 8SN"),
        ("8SNs", "8SNs 8SN"),
        ("8SNn", "8SNn"),
    ],
)
def test_what_may_requantize_what(lower, uppers):
    every = grids("8SN 8AN 8SC 8AC 16SN 4SN 4AN 8SNu 8SNs 8SNn")
    (grid,) = grids(lower)
    assert set(grids(uppers)) <= {upper for upper in every if may_requantize(grid, upper)}
    assert all(upper.bits >= grid.bits for upper in every if may_requantize(grid, upper))


@pytest.mark.parametrize(
    ("upper", "lower", "redundant"),
    [
        ("8SN", "8SN", True),
        ("8SN", "8AN", True),
        ("8AN", "8SN", False),
        ("8SN", "8SC", True),
        ("8SC", "8SN", False),
        ("8SN", "4SN", False),
        ("8SNs", "8SNu", False),
        ("8SNs", "8SN", True),
        ("8SNn", "8SN", False),
    ],
)
def test_what_makes_what_redundant(upper, lower, redundant):
    assert makes_redundant(*grids(f"{upper} {lower}")) == redundant
