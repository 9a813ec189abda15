"""The graph of a network as MXNet writes it: `NAME-symbol.json`, `Symbol.tojson()`.

Versions differ in small things, which are gone behind `parse_symbol`: attributes stand under
`attrs`, before 1.0 under `attr`, before 0.9 under `param`; then, the statistics of a batch norm
were no nodes; entries had no version as third number.

Source: src/nnvm/legacy_json_util.cc and python/mxnet/symbol/symbol.py of MXNet 1.9.1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tvm_quant.errors import FrontendError
from tvm_quant.frontend.mxnet.attributes import Attributes

VARIABLE = "null"

#: Where a node that computes a loss in training has its label, which inference does not read.
LABELS = {
    "LinearRegressionOutput": 1,
    "LogisticRegressionOutput": 1,
    "MAERegressionOutput": 1,
    "SVMOutput": 1,
    "Softmax": 1,
    "SoftmaxOutput": 1,
}

#: Inputs that the oldest files leave out, by the names that MXNet gives them.
_STATISTICS = {"BatchNorm": ("moving_mean", "moving_var")}
_BATCH_NORM_OPERANDS = 3


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One result of a node."""

    node: int
    output: int


@dataclass(frozen=True, kw_only=True)
class SymbolNode:
    """One node: an operator, or a variable (`operator` is "null")."""

    operator: str
    name: str
    attributes: Attributes
    inputs: tuple[Entry, ...]

    @property
    def is_variable(self) -> bool:
        """Whether it is an input of the network or a parameter."""
        return self.operator == VARIABLE


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Nodes, each behind those it reads; `heads` are the results of the network."""

    nodes: tuple[SymbolNode, ...]
    heads: tuple[Entry, ...]

    def needed(self) -> Iterator[tuple[int, SymbolNode]]:
        """The nodes that the results depend on, in order."""
        wanted = {entry.node for entry in self.heads}
        for index in reversed(range(len(self.nodes))):
            if index in wanted:
                wanted |= {entry.node for entry in self.nodes[index].inputs}
        return ((index, self.nodes[index]) for index in sorted(wanted))


def parse_symbol(text: str, where: str) -> Graph:
    """The graph in a JSON text; labels of losses are left out.

    Args:
        text: of the file.
        where: how messages name it.

    Raises:
        FrontendError: no JSON, another JSON, or a graph that contradicts itself.
    """
    try:
        document = json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise FrontendError(
            f"{where} is no JSON text ({error}). Expected is what `export` or `save_checkpoint` "
            "wrote."
        ) from error
    if not isinstance(document, Mapping) or not {"nodes", "heads"} <= set(document):
        raise FrontendError(
            f"{where} is no symbol of MXNet: it has no 'nodes' and 'heads'. Expected is what "
            "`export` or `save_checkpoint` wrote."
        )
    try:
        nodes = [_node(item) for item in document["nodes"]]
        heads = [_entry(item) for item in document["heads"]]
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise FrontendError(
            f"{where} is damaged: a node or head is not as MXNet writes it ({error!r}). Copy it "
            "again."
        ) from error
    _check(nodes, heads, where)
    return _upgraded(nodes, heads)


def _node(item: Mapping[str, Any]) -> SymbolNode:
    found = {**item.get("param", {}), **item.get("attr", {}), **item.get("attrs", {})}
    return SymbolNode(
        operator=str(item["op"]),
        name=str(item["name"]),
        attributes=Attributes({str(name): str(value) for name, value in found.items()}),
        inputs=tuple(_entry(entry) for entry in item["inputs"]),
    )


def _entry(item: list[int]) -> Entry:
    return Entry(node=int(item[0]), output=int(item[1]))


def _check(nodes: list[SymbolNode], heads: list[Entry], where: str) -> None:
    if not heads:
        raise FrontendError(f"{where} has no results: 'heads' is empty.")
    for index, node in enumerate(nodes):
        for entry in node.inputs:
            if not 0 <= entry.node < index:
                raise FrontendError(
                    f"{where} is damaged: node {index} ('{node.name}') reads node {entry.node}; "
                    "expected one before it. Copy it again."
                )
    for head in heads:
        if not 0 <= head.node < len(nodes):
            raise FrontendError(
                f"{where} is damaged: a result is that of node {head.node}, of {len(nodes)}. Copy "
                "it again."
            )


def _upgraded(nodes: list[SymbolNode], heads: list[Entry]) -> Graph:
    """With a node for each statistic, and without labels."""
    result: list[SymbolNode] = []
    place: dict[int, int] = {}
    for index, node in enumerate(nodes):
        inputs = tuple(replace(entry, node=place[entry.node]) for entry in node.inputs)
        missing = _STATISTICS.get(node.operator, ())
        if missing and len(inputs) == _BATCH_NORM_OPERANDS:
            for suffix in missing:
                inputs += (Entry(node=len(result), output=0),)
                result.append(_variable(f"{node.name}_{suffix}"))
        label = LABELS.get(node.operator, len(inputs))
        place[index] = len(result)
        result.append(replace(node, inputs=inputs[:label]))
    moved = (replace(head, node=place[head.node]) for head in heads)
    return Graph(nodes=tuple(result), heads=tuple(moved))


def _variable(name: str) -> SymbolNode:
    return SymbolNode(operator=VARIABLE, name=name, attributes=Attributes({}), inputs=())
