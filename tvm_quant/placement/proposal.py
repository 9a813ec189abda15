"""The two results of placement: a proposal (what is possible) and a setup (what is chosen).

A proposal lists for each place the grids that are possible there, best first, the places that must
share one grid and one scale, the places whose widths belong together, and the reason for each call
that stays in float. `choose` picks one grid per place and drops quantizers without effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tvm import relax

from tvm_quant.config import QuantizeConfig
from tvm_quant.hardware import Grid, HardwareConfig
from tvm_quant.op import NO_GROUP, Kind, QuantSpec, Role, contraction_axes, known_range
from tvm_quant.placement.extract import RESULT, extract
from tvm_quant.placement.flow import MOVING, Flow
from tvm_quant.placement.graph import Graph, Place
from tvm_quant.placement.network import Network, Node
from tvm_quant.placement.settle import (
    first_choice,
    holding_codes,
    unified_of,
    without_redundant,
)
from tvm_quant.placement.solve import Solution, solve
from tvm_quant.placement.support import Support


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """What a place quantizes.

    Attributes:
        kind: its role.
        axis: its channel axis, for one scale per channel; None if it has none.
        groups: see `QuantSpec.groups`.
        negative: whether it may hold negative values.
    """

    kind: Kind
    axis: int | None = None
    groups: int = 1
    negative: bool = True


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """Everything that may be quantized, and why the rest may not.

    Attributes:
        graph: the calls of the function as placement sees them, by variable name.
        solution: places, grids and groups.
        tensors: what each place of the solution quantizes.
        reasons: per variable of a call that stays in float, why.
    """

    graph: Graph
    solution: Solution
    tensors: Mapping[Place, Tensor]
    reasons: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Quantizer:
    """The chosen grid of a place and the number of its unified-scale group."""

    spec: QuantSpec
    kind: Kind
    group: int = NO_GROUP


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One quantizer per place, and the reasons of the proposal."""

    quantizers: Mapping[Place, Quantizer]
    reasons: Mapping[str, str]


def propose(func: relax.Function, hardware: HardwareConfig, config: QuantizeConfig) -> Proposal:
    """Find the places for quantizers in a prepared function.

    Args:
        func: `main` of a prepared module.
        hardware: the row that says which grids each operator accepts.
        config: which nodes to leave out, widths, and what happens at forks.

    Raises:
        ConfigError: a pattern or index in `config` selects nothing.
    """
    network = Network(func)
    flow = Flow(network, Support(network, hardware, config))
    graph = extract(network, flow, hardware, config)
    solution = solve(graph, config.merge_branches)
    reasons = {str(var.name): flow.reasons[var] for var in network.nodes if var in flow.reasons}
    return Proposal(
        graph=graph,
        solution=solution,
        tensors=_tensors(func, network, graph, solution),
        reasons=_with_blocked(reasons, graph, solution, network),
    )


def choose(proposal: Proposal, config: QuantizeConfig) -> Setup:
    """Take the first grid of every place, and leave out quantizers that would change nothing.

    Graph inputs get the width that `config` asks for; places that share a scale the widest of
    theirs, and one sign.
    """
    solution, tensors = proposal.solution, proposal.tensors
    chosen = first_choice(solution)
    for place, grid in list(chosen.items()):
        if tensors[place].kind is Kind.INPUT and grid.bits == config.nbit_activation:
            chosen[place] = replace(grid, bits=config.nbit_input)
    for group in solution.unified:
        bits = max(chosen[place].bits for place in group)
        chosen |= {place: replace(chosen[place], bits=bits) for place in group}
    unified = unified_of(solution, chosen)
    negative = {place for place in chosen if tensors[place].negative}
    for group in unified:
        negative |= group if group & negative else frozenset()
    final = without_redundant(proposal.graph, chosen, unified)
    number = {place: index for index, group in enumerate(unified) for place in group}
    return Setup(
        quantizers={
            place: Quantizer(
                spec=_spec(grid, tensors[place], negative=place in negative),
                kind=tensors[place].kind,
                group=number.get(place, NO_GROUP),
            )
            for place, grid in final.items()
        },
        reasons=proposal.reasons,
    )


def _spec(grid: Grid, tensor: Tensor, *, negative: bool) -> QuantSpec:
    """A free sign follows the data: signed where negative values are possible."""
    if grid.per_channel and tensor.axis is None:
        grid = replace(grid, per_channel=False)
    signed = negative and grid.symmetric
    return grid.spec(signed=signed, axis=tensor.axis, groups=tensor.groups)


def _tensors(
    func: relax.Function, network: Network, graph: Graph, solution: Solution
) -> dict[Place, Tensor]:
    variables = {str(var.name): var for var in network.values}

    def tensor(place: Place) -> Tensor:
        source = place.op if place.is_output else graph.port(place).source
        if source is None:
            return _weight(network.nodes[variables[place.op]], place.port)
        var = variables[source]
        free = any(grid.signed is None for grid in solution.points[place].grids)
        sinks = [network.nodes[variables[sink]] for sink in sorted(solution.points[place].sinks)]
        return Tensor(
            kind=Kind.INPUT if var in network.params else Kind.ACTIVATION,
            axis=next((_channel_axis(sink) for sink in sinks), None),
            negative=known_range(func, var)[0] < 0 if free else True,
        )

    return {place: tensor(place) for place in solution.points}


def _weight(node: Node, port: int) -> Tensor:
    axes = contraction_axes(node.call)
    return Tensor(
        kind=Kind.WEIGHT,
        axis=axes.weight_output if port == 1 else None,
        groups=axes.weight_blocks if port == 1 else 1,
    )


def _channel_axis(node: Node) -> int | None:
    """The channel axis of what a call reads."""
    if node.role is Role.CONTRACTION:
        return contraction_axes(node.call).data
    layout = str(getattr(node.call.attrs, "layout", "NC"))
    return layout.index("C")


def _with_blocked(
    reasons: Mapping[str, str], graph: Graph, solution: Solution, network: Network
) -> dict[str, str]:
    """The reasons for float, in order of execution, with those that propagation found."""
    chosen = first_choice(solution)
    moving = holding_codes(graph, chosen, unified_of(solution, chosen))
    found = {}
    for var, node in network.nodes.items():
        name = str(var.name)
        if name in reasons:
            found[name] = reasons[name]
        elif node.role in MOVING and name not in moving:
            found[name] = _why_blocked(name, graph, solution, network)
    return found


def _why_blocked(name: str, graph: Graph, solution: Solution, network: Network) -> str:
    if name not in solution.blocked:
        return "its quantizer stays below it"
    reader = solution.blocked[name]
    if reader is None:
        return "what reads it accepts no common grid"
    if reader == RESULT:
        return "the network returns it"
    user = next(node for var, node in network.nodes.items() if str(var.name) == reader)
    if any(port.fixed and port.grids for port in graph.ops[reader].ports):
        return f"'{user.names[0]}' has a quantizer of its own"
    return f"'{user.names[0]}' reads it in float"
