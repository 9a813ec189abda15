"""A layered drawing of a directed graph without cycles, from top to bottom.

1. *Layers*: every node stands below all that it reads; a node that reads nothing just above its
   first reader.
2. *Lanes*: an edge across several layers passes through a narrow lane in each layer between.
3. *Order*: within a layer, nodes are sorted by the mean place of their neighbours, downwards and
   upwards in turn; the order with the fewest crossings wins.
4. *Places*: chains, where each reads only the one above and nothing else does, stay upright; they
   are drawn towards their neighbours as far as order and distances allow.

Source: Sugiyama, Tagawa and Toda, IEEE Transactions on Systems, Man, and Cybernetics 11(2), 1981.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

Edge: TypeAlias = tuple[int, int]

SWEEPS = 12
PULLS = 60
LANE = 14.0
"""Width of a lane, px."""

STRAIGHT = 8.0
"""How much more a lane wants to keep its place than a node does."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where everything stands, in px; y grows downwards.

    Attributes:
        centres: x of the middle of each node.
        tops: y of the upper side of each node.
        lanes: per edge, (x, top, bottom) of the lanes that it passes, from its source down.
        width, height: of the whole drawing.
    """

    centres: tuple[float, ...]
    tops: tuple[float, ...]
    lanes: tuple[tuple[tuple[float, float, float], ...], ...]
    width: float
    height: float


def lay_out(
    sizes: Sequence[tuple[float, float]],
    edges: Sequence[Edge],
    *,
    headroom: Sequence[float] = (),
    gap_x: float = 24.0,
    gap_y: float = 32.0,
) -> Layout:
    """Place the nodes of a graph.

    Args:
        sizes: (width, height) of each node, px.
        edges: (source, target) as indices of nodes, with source < target; may repeat.
        headroom: room above each node, more than `gap_y`, px; none by default.
        gap_x, gap_y: smallest distances of neighbours in a layer, and of layers, px.

    >>> lay_out([(10, 5), (10, 5)], [(0, 1)], gap_y=20).tops
    (0.0, 25.0)
    """
    graph = _Layered(sizes, edges)
    order = _ordered(graph)
    centres = _placed(graph, order, gap_x)
    tops, bottoms = _rows(graph, order, gap_y, headroom)
    count = len(sizes)
    layer_top = [min((tops[v] for v in row), default=0.0) for row in order]
    layer_bottom = [max((bottoms[v] for v in row), default=0.0) for row in order]
    lanes = tuple(
        tuple((centres[v], layer_top[graph.layer[v]], layer_bottom[graph.layer[v]]) for v in chain)
        for chain in graph.chains
    )
    left = min((centres[v] - graph.widths[v] / 2 for v in range(len(centres))), default=0.0)
    right = max((centres[v] + graph.widths[v] / 2 for v in range(len(centres))), default=0.0)
    return Layout(
        centres=tuple(x - left for x in centres[:count]),
        tops=tuple(tops[:count]),
        lanes=tuple(tuple((x - left, top, bottom) for x, top, bottom in lane) for lane in lanes),
        width=right - left,
        height=max(layer_bottom, default=0.0),
    )


@dataclass
class _Layered:
    """Nodes and, numbered after them, the lanes of long edges; every link spans one layer."""

    sizes: Sequence[tuple[float, float]]
    edges: Sequence[Edge]
    layer: list[int] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)
    heights: list[float] = field(default_factory=list)
    chains: list[list[int]] = field(default_factory=list)
    above: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    below: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self.layer = _layers(len(self.sizes), self.edges)
        self.widths = [width for width, _ in self.sizes]
        self.heights = [height for _, height in self.sizes]
        self.chains = [self._chain(source, target) for source, target in self.edges]

    def _chain(self, source: int, target: int) -> list[int]:
        chain = []
        for layer in range(self.layer[source] + 1, self.layer[target]):
            chain.append(len(self.layer))
            self.layer.append(layer)
            self.widths.append(LANE)
            self.heights.append(0.0)
        path = [source, *chain, target]
        for upper, lower in pairwise(path):
            self.below[upper].append(lower)
            self.above[lower].append(upper)
        return chain

    def is_lane(self, vertex: int) -> bool:
        return vertex >= len(self.sizes)


def _layers(count: int, edges: Sequence[Edge]) -> list[int]:
    layer = [0] * count
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        layer[target] = max(layer[target], layer[source] + 1)
    readers: dict[int, list[int]] = defaultdict(list)
    for source, target in edges:
        readers[source].append(layer[target])
    read = {target for _, target in edges}
    for node, layers in readers.items():
        if node not in read:
            layer[node] = min(layers) - 1
    return layer


# Order --------------------------------------------------------------------------


def _ordered(graph: _Layered) -> list[list[int]]:
    rows = _first_order(graph)
    best, fewest = [list(row) for row in rows], _crossings(graph, rows)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        neighbours = graph.above if down else graph.below
        indices = range(1, len(rows)) if down else range(len(rows) - 2, -1, -1)
        for index in indices:
            fixed = rows[index - 1 if down else index + 1]
            rows[index] = _by_barycentre(rows[index], fixed, neighbours)
        crossings = _crossings(graph, rows)
        if crossings < fewest:
            best, fewest = [list(row) for row in rows], crossings
    return best


def _first_order(graph: _Layered) -> list[list[int]]:
    """As a walk into the depth meets the vertices: branches lie side by side."""
    rows: list[list[int]] = [[] for _ in range(max(graph.layer, default=-1) + 1)]
    seen: set[int] = set()
    for root in range(len(graph.sizes)):
        stack = [root]
        while stack:
            vertex = stack.pop()
            if vertex not in seen:
                seen.add(vertex)
                rows[graph.layer[vertex]].append(vertex)
                stack.extend(reversed(graph.below[vertex]))
    return rows


def _by_barycentre(
    row: Sequence[int], fixed: Sequence[int], neighbours: Mapping[int, Sequence[int]]
) -> list[int]:
    place = {vertex: index for index, vertex in enumerate(fixed)}
    own = {vertex: index for index, vertex in enumerate(row)}

    def mean(vertex: int) -> float:
        found = [place[other] for other in neighbours[vertex]]
        return sum(found) / len(found) if found else own[vertex] * len(fixed) / len(row)

    return sorted(row, key=mean)


def _crossings(graph: _Layered, rows: Sequence[Sequence[int]]) -> int:
    total = 0
    for upper, lower in pairwise(rows):
        place = {vertex: index for index, vertex in enumerate(lower)}
        ends: list[int] = []
        for vertex in upper:
            targets = sorted(place[other] for other in graph.below[vertex])
            total += sum(len(ends) - bisect_right(ends, target) for target in targets)
            for target in targets:
                insort(ends, target)
    return total


# Places -------------------------------------------------------------------------


def _placed(graph: _Layered, rows: Sequence[Sequence[int]], gap: float) -> list[float]:
    centres = [0.0] * len(graph.layer)
    for row in rows:
        _spread(graph, row, centres, gap)
    chains = _chains(graph)
    for pull in [*[0.5] * PULLS, *[0.0] * PULLS]:
        for chain in chains:
            place = _wanted(graph, chain, centres, pull)
            for vertex in chain:
                centres[vertex] = place
        for row in rows:
            _spread(graph, row, centres, gap)
    return centres


def _chains(graph: _Layered) -> list[list[int]]:
    """Vertices in runs of which each but the first is the only reader of the one before it."""
    chains: list[list[int]] = []
    seen: set[int] = set()
    for vertex in sorted(range(len(graph.layer)), key=lambda vertex: graph.layer[vertex]):
        if vertex in seen:
            continue
        chain = [vertex]
        while len(graph.below[chain[-1]]) == 1:
            (lower,) = graph.below[chain[-1]]
            if len(graph.above[lower]) > 1:
                break
            chain.append(lower)
        seen.update(chain)
        chains.append(chain)
    return chains


def _wanted(graph: _Layered, chain: Sequence[int], centres: Sequence[float], pull: float) -> float:
    """Where the chain is now, moved by a share `pull` to the middle of what it hangs on."""
    own = sum(centres[vertex] for vertex in chain) / len(chain)
    ends = [
        sum(centres[other] for other in others) / len(others)
        for others in (graph.above[chain[0]], graph.below[chain[-1]])
        if others
    ]
    return own + pull * (sum(ends) / len(ends) - own) if ends else own


def _spread(
    graph: _Layered,
    row: Sequence[int],
    centres: list[float],
    gap: float,
) -> None:
    """Move the vertices of a row no more than needed, in squares, to keep their distances.

    Less the distances from the first vertex, places only need to ascend: isotonic regression, which
    joins neighbours that are out of order into blocks at their mean.
    """
    offsets = [0.0]
    for left, right in pairwise(row):
        distance = (graph.widths[left] + graph.widths[right]) / 2
        lanes = graph.is_lane(left) and graph.is_lane(right)
        offsets.append(offsets[-1] + distance + (0.0 if lanes else gap))
    blocks: list[tuple[float, float, int]] = []  # mean, weight, count
    for vertex, offset in zip(row, offsets, strict=True):
        mean, weight, count = (
            centres[vertex] - offset,
            STRAIGHT if graph.is_lane(vertex) else 1.0,
            1,
        )
        while blocks and blocks[-1][0] > mean:
            other, other_weight, other_count = blocks.pop()
            mean = (mean * weight + other * other_weight) / (weight + other_weight)
            weight, count = weight + other_weight, count + other_count
        blocks.append((mean, weight, count))
    places = [mean for mean, _, count in blocks for _ in range(count)]
    for vertex, place, offset in zip(row, places, offsets, strict=True):
        centres[vertex] = place + offset


def _rows(
    graph: _Layered, rows: Sequence[Sequence[int]], gap: float, headroom: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Upper and lower side of each vertex: the upper sides of a layer are in line."""
    tops, bottoms = [0.0] * len(graph.layer), [0.0] * len(graph.layer)
    y = -gap
    for row in rows:
        y += gap + max((headroom[vertex] for vertex in row if vertex < len(headroom)), default=0.0)
        height = max((graph.heights[vertex] for vertex in row), default=0.0)
        for vertex in row:
            tops[vertex], bottoms[vertex] = y, y + graph.heights[vertex]
        y += height
    return tops, bottoms
