"""Adjacency: quantizers that go together when a call changes its width or returns to float.

Two quantizers are adjacent if one call computes with the tensors of both, directly or through calls
that only move integers, or if one reads codes of the other. A weight is adjacent to the data of its
call.
"""

from __future__ import annotations

from tvm_quant.artifact import Call, Network, Port
from tvm_quant.op import OP_SPECS, Role
from tvm_quant.placement import DisjointSets

MOVES = frozenset({Role.MOVE, Role.JOIN})


def adjacency_groups(network: Network) -> dict[str, int]:
    """{variable of the quantizer: number of its group}, groups counted in execution order.

    Example:
        groups = adjacency_groups(network_of(mod))
        together = [name for name, group in groups.items() if group == groups["conv1_weight_q"]]
    """
    codes: dict[str, list[str]] = {}
    sets = DisjointSets[str]()
    quantizers: dict[str, None] = {}
    for call in network.calls:
        if call.reason is not None:
            continue
        found = [name for port in call.ports for name in _codes_at(port, codes, sets)]
        quantizers |= dict.fromkeys(found)
        if _moves(call):
            codes[call.variable] = list(dict.fromkeys(found))
        else:
            sets.join_all(found)
    groups = sets.sets(quantizers)
    return {name: index for index, group in enumerate(groups) for name in group}


def _codes_at(port: Port, codes: dict[str, list[str]], sets: DisjointSets[str]) -> list[str]:
    """Quantizers whose codes a port reads."""
    above = [name for variable in port.reads for name in codes.get(variable, ())]
    if port.quantizer is None:
        return above
    sets.join_all([port.quantizer.variable, *above])
    return [port.quantizer.variable]


def _moves(call: Call) -> bool:
    return call.op in OP_SPECS and OP_SPECS[call.op].role in MOVES
