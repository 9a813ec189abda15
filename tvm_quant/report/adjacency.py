"""Adjacency: quantizers that go together when a call changes its width or returns to float.

Two quantizers are adjacent if one call computes with the tensors of both, directly or through calls
that only move integers, or if one reads codes of the other. A weight is adjacent to the data of its
call.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm_quant.artifact import Call, Network, Port
from tvm_quant.op import OP_SPECS, Role

MOVES = frozenset({Role.MOVE, Role.JOIN})


def adjacency_groups(network: Network) -> dict[str, int]:
    """{variable of the quantizer: number of its group}, groups counted in execution order.

    Example:
        groups = adjacency_groups(network_of(mod))
        together = [name for name, group in groups.items() if group == groups["conv1_weight_q"]]
    """
    codes: dict[str, list[str]] = {}
    parent: dict[str, str] = {}
    for call in network.calls:
        if call.reason is not None:
            continue
        found = [name for port in call.ports for name in _codes_at(port, codes, parent)]
        if _moves(call):
            codes[call.variable] = list(dict.fromkeys(found))
        else:
            _join(parent, found)
    roots = {name: _root(parent, name) for name in parent}
    numbers = {root: index for index, root in enumerate(dict.fromkeys(roots.values()))}
    return {name: numbers[root] for name, root in roots.items()}


def _codes_at(port: Port, codes: dict[str, list[str]], parent: dict[str, str]) -> list[str]:
    """Quantizers whose codes a port reads."""
    above = [name for variable in port.reads for name in codes.get(variable, ())]
    if port.quantizer is None:
        return above
    parent.setdefault(port.quantizer.variable, port.quantizer.variable)
    _join(parent, [port.quantizer.variable, *above])
    return [port.quantizer.variable]


def _moves(call: Call) -> bool:
    return call.op in OP_SPECS and OP_SPECS[call.op].role in MOVES


def _join(parent: dict[str, str], names: Sequence[str]) -> None:
    for name in names[1:]:
        parent[_root(parent, name)] = _root(parent, names[0])


def _root(parent: dict[str, str], name: str) -> str:
    while parent[name] != name:
        name = parent[name]
    return name
