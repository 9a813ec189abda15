"""Reads propagation_cases.json: graphs, tables, and what NNCF 3.4.0 answers to them.

Names of places in the file: in(op,port), out(op), weight(op). Here a weight is a constant port, the
last one of its operator.
"""

import json
from pathlib import Path

from tvm_quant.hardware import Grid
from tvm_quant.placement.graph import Graph, Op, Place, Port, Trait
from tvm_quant.placement.merge import MergeRule

TRAITS = {
    "Q": Trait.QUANTIZABLE,
    "A": Trait.AGNOSTIC,
    "CAT": Trait.JOIN,
    "F": Trait.FLOAT,
    "W": Trait.LOOKUP,
}
RULES = {
    "DO_NOT_MERGE_BRANCHES": MergeRule.NEVER,
    "MERGE_IF_ALL_BRANCHES_SAME": MergeRule.SAME,
    "MERGE_WITH_POTENTIAL_REQUANTIZATION": MergeRule.REQUANTIZE,
    "MERGE_ALL_IN_ONE": MergeRule.COMMON,
}
OUTPUT = {"trait": "Q", "configs": ["8SN"]}  # what the reference quantizes outputs to


def load(path: Path):
    return json.loads(path.read_text(encoding="utf-8"))


def parsed(codes):
    return tuple(Grid.parse(code) for code in codes)


def graph_of(case, table, order=None):
    """The graph of a case.

    Args:
        order: operators in the order in which the graph lists them; topological.
    """
    rows = {
        "input": {"trait": "F"},
        "output": OUTPUT if case.get("outputs") else {"trait": "F"},
        **table,
    }
    names = order or list(case["ops"])
    return Graph(_op(case, name, rows[case["ops"][name]]) for name in names)


def _op(case, name, row):
    ignored = name in case.get("ignored", ())
    kind = case["ops"][name]
    accepted = () if ignored else parsed(row.get("configs", ()))
    only = case.get("ports", {}).get(kind)
    edges = sorted(
        (edge[2] if len(edge) > 2 else 0, edge[0], "int" in edge[3:])
        for edge in case["edges"]
        if edge[1] == name
    )
    ports = [
        Port(
            source=source,
            grids=accepted if only is None or index in only else (),
            integer=integer,
        )
        for index, source, integer in edges
    ]
    weights = parsed(case.get("weights", {}).get(name, ()))
    if weights:
        ports.append(Port(source=None, grids=weights))
    return Op(
        name=name,
        trait=Trait.FLOAT if ignored else TRAITS[row["trait"]],
        ports=tuple(ports),
        unified=bool(row.get("unified")),
        cheap=kind in case.get("filter_types", ()),
    )


def named(graph: Graph, place: Place) -> str:
    """A place as the file spells it."""
    if not place.is_output and graph.port(place).source is None:
        return f"weight({place.op})"
    return str(place)


def groups_of(graph: Graph, groups):
    return sorted(sorted(named(graph, place) for place in group) for group in groups)
