"""Choosing for every group so that the losses are least and the costs within a budget.

    minimise  sum over g, c of loss[g, c] * x[g, c]
    so that   sum over c of x[g, c] = 1 for each g,   sum of cost[g, c] * x[g, c] <= limit

with x in {0, 1}: a multiple-choice knapsack problem, solved exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from tvm_quant.errors import ConfigError

#: The solver stops within 1e-6 of the best sum of losses: the largest loss is scaled to this.
LARGEST_LOSS = 1e6


def assign(
    losses: Sequence[Sequence[float]], costs: Sequence[Sequence[float]], limit: float
) -> list[int]:
    """The best choice of every group.

    Args:
        losses: of each choice of each group, finite.
        costs: in the same shape, in any unit.
        limit: the costs of the choices may add up to this, in the same unit.

    Returns:
        The index of the choice of each group.

    Raises:
        ConfigError: even the cheapest choices cost more than the limit.

    >>> losses = [[9.0, 1.0], [4.0, 3.0]]
    >>> assign(losses, costs=[[1, 2], [1, 2]], limit=3)
    [1, 0]
    """
    cheapest = sum(min(group) for group in costs)
    if cheapest > limit:
        raise ConfigError(
            f"The budget is {limit:g}, but the cheapest choice of every group costs "
            f"{cheapest:g} together. Allow a larger budget, or cheaper choices."
        )
    sizes = [len(group) for group in losses]
    starts = np.cumsum([0, *sizes])
    choices = np.zeros((len(sizes), starts[-1]))
    for row, (start, size) in enumerate(zip(starts, sizes, strict=False)):
        choices[row, start : start + size] = 1
    loss = np.concatenate([np.asarray(group, np.float64) for group in losses])
    cost = np.concatenate([np.asarray(group, np.float64) for group in costs])
    largest = np.abs(loss).max() or 1.0
    found = milp(
        loss / largest * LARGEST_LOSS,
        integrality=np.ones(len(loss)),
        bounds=Bounds(0, 1),
        constraints=[
            LinearConstraint(choices, 1, 1),
            LinearConstraint(cost[None], -np.inf, limit),
        ],
        options={"mip_rel_gap": 0.0},
    )
    if found.x is None:
        raise ConfigError(f"No assignment was found: {found.message}")
    parts = np.split(found.x, starts[1:-1])
    return [int(part.argmax()) for part in parts]
