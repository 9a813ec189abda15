"""What happens where several quantizers meet at a fork: a table of rules.

Each branch below the fork brings an ordered list of grids. A rule answers with the list of one
quantizer above the fork, empty if there is none. A branch is *absorbed* if the quantizer above does
all that its own would do; otherwise its own stays below and requantizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm_quant.config import MergeRule
from tvm_quant.hardware import Grid
from tvm_quant.placement.compatible import may_requantize

Branch = tuple[Grid, ...]


@dataclass(frozen=True)
class Merge:
    """Outcome at a fork.

    Attributes:
        grids: of the quantizer above the fork, best first; empty if there is none.
        kept: for each branch, whether its own quantizer stays.
    """

    grids: Branch
    kept: tuple[bool, ...]


def merge(rule: MergeRule, branches: Sequence[Branch]) -> Merge:
    """Merge the lists of the branches; their order does not matter.

    >>> from tvm_quant.hardware import grids
    >>> found = merge(MergeRule.REQUANTIZE, [grids("8AN"), grids("4SN")])
    >>> [str(grid) for grid in found.grids], found.kept
    (['8AN'], (False, True))
    """
    merged = tuple(sorted(_CANDIDATES[rule](branches), key=lambda grid: _priority(grid, branches)))
    if not merged:
        return Merge((), (True,) * len(branches))
    if rule is not MergeRule.REQUANTIZE:
        return Merge(merged, (False,) * len(branches))
    return Merge(merged, tuple(set(branch) != set(merged) for branch in branches))


def _never(_branches: Sequence[Branch]) -> set[Grid]:
    return set()


def _same(branches: Sequence[Branch]) -> set[Grid]:
    alike = len({frozenset(branch) for branch in branches}) == 1
    return set(branches[0]) if alike else set()


def _common(branches: Sequence[Branch]) -> set[Grid]:
    return set.intersection(*map(set, branches))


def _requantize(branches: Sequence[Branch]) -> set[Grid]:
    def serves(upper: Grid, branch: Branch) -> bool:
        return upper in branch or all(may_requantize(lower, upper) for lower in branch)

    union = set[Grid]().union(*branches)
    return {grid for grid in union if all(serves(grid, branch) for branch in branches)}


_CANDIDATES: dict[MergeRule, Callable[[Sequence[Branch]], set[Grid]]] = {
    MergeRule.NEVER: _never,
    MergeRule.SAME: _same,
    MergeRule.REQUANTIZE: _requantize,
    MergeRule.COMMON: _common,
}


def _priority(grid: Grid, branches: Sequence[Branch]) -> tuple[int, int, bool, bool, str]:
    """The sum of its ranks in all lists; then more bits, per tensor, symmetric."""
    absent = max(map(len, branches)) + 1
    ranks = sum(branch.index(grid) if grid in branch else absent for branch in branches)
    return ranks, -grid.bits, grid.per_channel, not grid.symmetric, str(grid)
