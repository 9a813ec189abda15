"""From what may stand at each place to what does: one grid per place, none without effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tvm_quant.hardware import Grid
from tvm_quant.placement.compatible import makes_redundant
from tvm_quant.placement.graph import Graph, Op, Place, Trait
from tvm_quant.placement.solve import Solution


@dataclass(frozen=True)
class _Held:
    """What the values of a tensor were quantized to last: a grid, and whose scale it has."""

    grid: Grid
    scale: Place


def first_choice(solution: Solution) -> dict[Place, Grid]:
    """The first grid of every place; of places with one scale, the first that all of them accept.

    Places of such a group that take one scale per channel leave it (see `unified_of`).
    """
    chosen = {place: point.grids[0] for place, point in solution.points.items()}
    for group in solution.unified:
        lists = [solution.points[place].grids for place in sorted(group)]
        common = [grid for grid in lists[0] if all(grid in other for other in lists)]
        if common:
            chosen |= dict.fromkeys(group, common[0])
    return chosen


def unified_of(solution: Solution, chosen: Mapping[Place, Grid]) -> tuple[frozenset[Place], ...]:
    """The groups of places with one scale, among the places of `chosen`.

    Places of a group that chose different grids, or one scale per channel, are no group.
    """
    groups = []
    for group in solution.unified:
        by_grid: dict[Grid, set[Place]] = {}
        for place in group & set(chosen):
            if not chosen[place].per_channel:
                by_grid.setdefault(chosen[place], set()).add(place)
        groups += [frozenset(places) for places in by_grid.values() if len(places) > 1]
    return tuple(sorted(groups, key=sorted))


def without_redundant(
    graph: Graph, chosen: Mapping[Place, Grid], unified: tuple[frozenset[Place], ...]
) -> dict[Place, Grid]:
    """The chosen grids without those that change nothing, from the inputs of the graph down.

    A quantizer below another one on the same values is redundant if the upper one makes it so (see
    `makes_redundant`). Codes pass through agnostic operators, and through a join whose inputs have
    one grid and one scale.
    """
    kept = set(_Walk(graph, chosen, unified).kept)
    return {place: grid for place, grid in chosen.items() if place in kept}


def holding_codes(
    graph: Graph, chosen: Mapping[Place, Grid], unified: tuple[frozenset[Place], ...]
) -> set[str]:
    """Operators whose result is quantized, or codes that were moved."""
    outputs = _Walk(graph, chosen, unified).outputs
    return {name for name, held in outputs.items() if held is not None}


class _Walk:
    """What each result holds, and which quantizers do something, from the inputs down."""

    def __init__(
        self,
        graph: Graph,
        chosen: Mapping[Place, Grid],
        unified: tuple[frozenset[Place], ...],
    ):
        self.chosen = chosen
        self.scale_of = {place: min(group) for group in unified for place in group}
        self.kept: list[Place] = []
        self.outputs: dict[str, _Held | None] = {}
        for op in graph.ops.values():
            inputs = [
                self._quantize(Place(op.name, index), self.outputs.get(port.source or ""))
                for index, port in enumerate(op.ports)
            ]
            self.outputs[op.name] = self._quantize(Place.after(op.name), _moved(op, inputs))

    def _quantize(self, place: Place, held: _Held | None) -> _Held | None:
        if place not in self.chosen:
            return held
        grid, scale = self.chosen[place], self.scale_of.get(place)
        if held and makes_redundant(held.grid, grid) and scale in (None, held.scale):
            return held
        self.kept.append(place)
        return _Held(grid, scale or place)


def _moved(op: Op, inputs: list[_Held | None]) -> _Held | None:
    """What an operator that only moves codes hands on: what all of its data inputs hold."""
    data = {
        held
        for held, port in zip(inputs, op.ports, strict=True)
        if port.source is not None and not port.integer
    }
    if op.trait not in (Trait.AGNOSTIC, Trait.JOIN) or len(data) != 1:
        return None
    (held,) = data
    return None if held and held.grid.per_channel and not op.keeps_channels else held
