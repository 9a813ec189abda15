"""Regions: which matches run as one program.

A match joins the regions that compute what it reads, and those that read the same, unless two
regions would then wait for each other through what the CPU computes between them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from tvm import relax

from tvm_quant.backend.vta.match import Match

Unit = int  # what runs at once: a region, or a binding on the CPU
Reads = Mapping[relax.Var, tuple[relax.Var, ...]]


def grow(order: list[relax.Var], reads: Reads, matches: Mapping[relax.Var, Match]) -> list[Unit]:
    """The unit of each variable: equal for the variables of one region.

    Args:
        order: variables, each behind what it reads.
        reads: what each of them reads of the others, parameters left out.
        matches: of the variables that VTA computes.
    """
    grower = _Grower(order, reads)
    readers: dict[relax.Var, list[relax.Var]] = defaultdict(list)
    for var in order:
        if var not in matches:
            continue
        for operand in matches[var].reads:
            if operand in matches:
                grower.join(operand, var)
            for sibling in readers[operand]:
                grower.join(sibling, var)
            readers[operand].append(var)
    return [grower.unit[var] for var in order]


def in_order(order: list[relax.Var], reads: Reads, units: list[Unit]) -> Iterator[list[relax.Var]]:
    """The variables of each unit, units behind what they read, early ones first."""
    unit = dict(zip(order, units, strict=True))
    members: dict[Unit, list[relax.Var]] = defaultdict(list)
    for var in order:
        members[unit[var]].append(var)
    waits = _edges(order, reads, unit)
    done: set[Unit] = set()
    ready = list(members)
    while ready:
        following = next(u for u in ready if waits[u] <= done)
        yield members[following]
        done.add(following)
        ready.remove(following)


class _Grower:
    def __init__(self, order: list[relax.Var], reads: Reads):
        self.order = order
        self.reads = reads
        self.unit = {var: number for number, var in enumerate(order)}

    def join(self, first: relax.Var, second: relax.Var) -> None:
        """Make the units of two variables one, unless that makes a cycle."""
        kept, gone = self.unit[first], self.unit[second]
        if kept == gone or self._meet(kept, gone):
            return
        self.unit = {var: kept if unit == gone else unit for var, unit in self.unit.items()}

    def _meet(self, first: Unit, second: Unit) -> bool:
        """Whether one of two units waits for the other through a third."""
        waits = _edges(self.order, self.reads, self.unit)
        return any(
            goal in _behind(waits, waits[start] - {goal})
            for start, goal in ((first, second), (second, first))
        )


def _edges(
    order: list[relax.Var], reads: Reads, unit: Mapping[relax.Var, Unit]
) -> dict[Unit, set[Unit]]:
    """The units that each unit reads from."""
    waits: dict[Unit, set[Unit]] = defaultdict(set)
    for var in order:
        waits[unit[var]] |= {unit[operand] for operand in reads[var]} - {unit[var]}
    return waits


def _behind(waits: Mapping[Unit, set[Unit]], start: set[Unit]) -> set[Unit]:
    """Every unit that some units wait for, themselves among them."""
    found, open_ones = set(start), list(start)
    while open_ones:
        new = waits[open_ones.pop()] - found
        found |= new
        open_ones += new
    return found
