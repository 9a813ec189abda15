"""Placement by propagation: quantizers start at the ports that ask for them and climb.

    x --+--> conv1            in(conv1,0), in(conv2,0) -> out(x)
        +--> pool --> conv2

Operators are visited from the last to the first, so that everything below a fork is settled when
the fork is looked at. At the output of an operator:

1. If something that reads it needs float (a float operator, an output of the network, a port
   without quantizer or with a fixed one, a join that nothing climbed through), what waits at the
   ports below stays.
2. If one port reads it, the quantizer there moves above it.
3. If several do, a `MergeRule` decides about one quantizer above the fork. A branch whose own
   quantizer stays below requantizes.

Then, at an agnostic operator or a join, the quantizer at its output climbs to each of its inputs,
one copy each; the copies share one scale where the operator is `unified`.

Because the order is that of the graph, no quantizer ever waits and the order of branches does not
matter. Source: the pull-based propagation of NNCF (openvinotoolkit/nncf pull request 349), which
finds the same places with a queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tvm_quant.config import MergeRule
from tvm_quant.errors import ConfigError
from tvm_quant.hardware import Grid
from tvm_quant.placement.disjoint import DisjointSets
from tvm_quant.placement.graph import Graph, Op, Place, Trait
from tvm_quant.placement.merge import merge


@dataclass(frozen=True, kw_only=True)
class Point:
    """A quantizer of the solution.

    Attributes:
        grids: what it may be, best first.
        sinks: operators whose ports it serves directly.
    """

    grids: tuple[Grid, ...]
    sinks: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Solution:
    """Where quantizers may stand.

    Attributes:
        points: by place.
        unified: places that must share one grid and one scale.
        adjacent: places whose widths belong together: they serve one operator, or one stands above
            the other on a branch.
        floats: operators that lost their only quantizer because it was not worth its cost.
        blocked: operators above whose result no quantizer rises, and the first reader that needs
            float; None where the readers accept no common grid.
    """

    points: Mapping[Place, Point]
    unified: tuple[frozenset[Place], ...] = ()
    adjacent: tuple[frozenset[Place], ...] = ()
    floats: frozenset[str] = frozenset()
    blocked: Mapping[str, str | None] = field(default_factory=dict)


def solve(graph: Graph, rule: MergeRule = MergeRule.COMMON) -> Solution:
    """Find the places for quantizers.

    Args:
        graph: operators and what their ports accept.
        rule: what happens at forks.

    Raises:
        ConfigError: a unified operator accepts one scale per channel only.
    """
    return _Solver(graph, rule).run()


@dataclass(eq=False)
class _Quantizer:
    """A quantizer on its way up.

    Attributes:
        moves: edges it climbed.
        tied: it shares its scale with others.
    """

    place: Place
    grids: tuple[Grid, ...]
    sinks: set[str]
    moves: int = 0
    tied: bool = False


class _Solver:
    def __init__(self, graph: Graph, rule: MergeRule):
        self.graph = graph
        self.rule = rule
        self.at: dict[Place, _Quantizer] = {}
        self.climbing: set[_Quantizer] = set()
        self.covered: set[Place] = set()  # places below which nothing needs the float value
        self.blocked: dict[str, str | None] = {}
        self.unified = DisjointSets[_Quantizer]()
        self.adjacent = DisjointSets[_Quantizer]()

    def run(self) -> Solution:
        for op in reversed(self.graph.ops.values()):
            self._rise_above(op)
            if op.trait in (Trait.AGNOSTIC, Trait.JOIN):
                self._climb_through(op)
            else:
                self._start(op)
        floats = self._drop_cheap()
        self._quantize_lookups()
        return self._solution(floats)

    # From the ports that read an operator to its output ---------------------------

    def _rise_above(self, op: Op) -> None:
        """Move what waits at the readers of `op` to its output, where the fork allows it."""
        readers = self.graph.readers[op.name]
        if any(self.graph.port(reader).integer for reader in readers):
            return
        floats = [reader.op for reader in readers if reader not in self.covered]
        if floats:
            self.blocked[op.name] = floats[0]
            return
        output = Place.after(op.name)
        waiting = [self.at[r] for r in readers if r in self.at and self.at[r] in self.climbing]
        if len(readers) == 1 and waiting:
            self._move(waiting[0], output)
        elif waiting:
            self._merge(waiting, output)
        self.covered.add(output)

    def _merge(self, waiting: list[_Quantizer], output: Place) -> None:
        found = merge(self.rule, [quantizer.grids for quantizer in waiting])
        absorbed = [q for q, kept in zip(waiting, found.kept, strict=True) if not kept]
        self.climbing -= set(waiting)
        if not found.grids:
            self.blocked[output.op] = None
            return
        merged = self._new(output, found.grids, {sink for q in absorbed for sink in q.sinks})
        merged.moves = max((q.moves for q in absorbed), default=0) + 1
        for quantizer in waiting:
            self.adjacent.join(merged, quantizer)
        for quantizer in absorbed:
            self._tie(merged, quantizer, tied=quantizer.tied)
            del self.at[quantizer.place]

    def _move(self, quantizer: _Quantizer, place: Place) -> None:
        del self.at[quantizer.place]
        quantizer.place = place
        quantizer.moves += 1
        self.at[place] = quantizer

    # From an output to the inputs of its operator ---------------------------------

    def _climb_through(self, op: Op) -> None:
        """Copy the quantizer at the output of `op` to each input, and settle what is covered."""
        output = Place.after(op.name)
        places = [
            Place(op.name, index)
            for index, port in enumerate(op.ports)
            if port.source is not None and not port.integer
        ]
        below = self.at.get(output)
        passing = _passing(op, below.grids) if below else ()
        if below is None or not passing or not places:
            if op.trait is Trait.AGNOSTIC and output in self.covered:
                self.covered.update(places)
            return
        del self.at[output]
        self.climbing.discard(below)
        for place in places:
            copy = self._new(place, passing, below.sinks)
            copy.moves = below.moves
            self.adjacent.join(below, copy)
            self._tie(below, copy, tied=below.tied or (op.unified and len(places) > 1))
        self.covered.update(places)

    # At the ports that ask ---------------------------------------------------------

    def _start(self, op: Op) -> None:
        """Place a quantizer at each port that asks for one."""
        started = [
            self._new(Place(op.name, index), _accepted(op, index), {op.name})
            for index, port in enumerate(op.ports)
            if port.grids and not port.integer
        ]
        for quantizer in started:
            self.adjacent.join(started[0], quantizer)
            port = self.graph.port(quantizer.place)
            if port.fixed or port.source is None:
                self.climbing.discard(quantizer)
            else:
                self.covered.add(quantizer.place)
        if op.unified:
            moving = [q for q in started if self.graph.port(q.place).source is not None]
            for quantizer in moving[1:]:
                self._tie(moving[0], quantizer, tied=True)

    def _new(self, place: Place, accepted: tuple[Grid, ...], sinks: Iterable[str]) -> _Quantizer:
        quantizer = _Quantizer(place, accepted, set(sinks))
        self.at[place] = quantizer
        self.climbing.add(quantizer)
        return quantizer

    def _tie(self, one: _Quantizer, other: _Quantizer, *, tied: bool) -> None:
        """Let two share what ties them to others, and one scale from now on if `tied`."""
        if not tied:
            return
        one.tied = other.tied = True
        self.unified.join(one, other)

    # After the climb -----------------------------------------------------------------

    def _drop_cheap(self) -> frozenset[str]:
        """Leave operators in float whose only quantizer serves nothing else and barely moved."""
        serving: dict[str, list[_Quantizer]] = {}
        for quantizer in self.at.values():
            for sink in quantizer.sinks:
                serving.setdefault(sink, []).append(quantizer)
        dropped = {
            name: found[0]
            for name, found in serving.items()
            if self.graph.ops[name].cheap
            and len(found) == len(found[0].sinks) == 1
            and found[0].moves <= 1
        }
        for quantizer in dropped.values():
            del self.at[quantizer.place]
        return frozenset(dropped)

    def _quantize_lookups(self) -> None:
        """Let the quantizer of a table of constants do for those of what is read from it."""
        for op in self.graph.ops.values():
            below = self.at.get(Place.after(op.name))
            if op.trait is not Trait.LOOKUP or below is None:
                continue
            (table,) = (
                self.at[Place(op.name, index)]
                for index, port in enumerate(op.ports)
                if port.source is None and port.grids
            )
            group = [q for q in self.at.values() if self.unified.together(q, below)]
            common = tuple(
                grid
                for grid in table.grids
                if not grid.per_channel and all(_accepts(q.grids, grid) for q in group)
            )
            if not common:
                continue
            del self.at[below.place]
            table.sinks |= below.sinks
            self.adjacent.join(below, table)
            self._tie(below, table, tied=below.tied)
            for quantizer in (table, *group):
                quantizer.grids = common

    def _solution(self, floats: frozenset[str]) -> Solution:
        found = [self.at[place] for place in sorted(self.at)]
        return Solution(
            points={q.place: Point(grids=q.grids, sinks=frozenset(q.sinks)) for q in found},
            unified=_groups(self.unified, found),
            adjacent=_groups(self.adjacent, found),
            floats=floats,
            blocked=self.blocked,
        )


def _accepted(op: Op, index: int) -> tuple[Grid, ...]:
    """The grids of a port; of a unified operator those with one scale."""
    port = op.ports[index]
    if not op.unified or port.source is None:
        return port.grids
    accepted = tuple(grid for grid in port.grids if not grid.per_channel)
    if not accepted:
        raise ConfigError(
            f"Input {index} of '{op.name}' shares its scale with the other inputs, but accepts "
            f"only grids with one scale per channel: {' '.join(map(str, port.grids))}."
        )
    return accepted


def _passing(op: Op, below: tuple[Grid, ...]) -> tuple[Grid, ...]:
    """The grids of a list that mean the same on both sides of an operator that moves values."""
    return tuple(grid for grid in below if op.keeps_channels or not grid.per_channel)


def _accepts(accepted: tuple[Grid, ...], grid: Grid) -> bool:
    """Whether a list holds a grid, where a free sign stands for both."""
    return any(one in (grid, replace(grid, signed=None)) for one in accepted)


def _groups(
    sets: DisjointSets[_Quantizer], found: list[_Quantizer]
) -> tuple[frozenset[Place], ...]:
    """The sets of two or more places."""
    groups = [frozenset(q.place for q in members) for members in sets.sets(found)]
    return tuple(group for group in groups if len(group) > 1)
