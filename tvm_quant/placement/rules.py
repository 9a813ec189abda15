"""Placement by a rule per role of operator.

1. *Support*: which calls can run on integers (support.py).
2. *Demand*, backwards: convolutions and matrix products always do; every other call does only if a
   quantized one reads its result, through whatever lies between. A tail of the network that no
   convolution reads stays in float.
3. *Flow*, forwards: what each variable will hold (`Flow`), and which ports therefore need a
   quantizer.
4. *Propagation*, backwards: a quantizer below a call that only moves integers is moved above it, to
   each of its ports, if everything that reads the call's result asked for the same grid and none
   of the readers has settings of its own for it.

A sum keeps one operand as an accumulator where a contraction feeds it alone: the other operand is
added to it at the accumulator's scale, which costs one rounding less than quantizing both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from tvm import relax

from tvm_quant.config import QuantizeConfig
from tvm_quant.hardware import HardwareConfig, OperandSpecs
from tvm_quant.op import Kind, QuantSpec, Role, contraction_axes
from tvm_quant.placement.network import Network, Node, same_shape
from tvm_quant.placement.proposal import Candidate, Place, Proposal, layer_config
from tvm_quant.placement.support import Support


class Flow(Enum):
    """What a variable holds once the network runs on integers."""

    FLOAT = "float"
    ACCUMULATOR = "accumulator"  # wide integers, with a scale per channel
    CODES = "codes"  # moved codes of a quantized tensor
    TABLE = "table"  # a function of the codes of one tensor


@dataclass(frozen=True)
class _Request:
    """A quantizer for `source`; `own` if an override of its reader sets grid or range."""

    source: relax.Var
    specs: tuple[QuantSpec, ...]
    own: bool = False


def propose(func: relax.Function, hardware: HardwareConfig, config: QuantizeConfig) -> Proposal:
    """Find the places for quantizers in a prepared function.

    Args:
        func: `main` of a prepared module.
        hardware: the row that says which grids each operator accepts.
        config: which nodes to leave out.

    Raises:
        ConfigError: a pattern or index in `config` selects nothing.
    """
    return _Proposer(Network(func), hardware, config).run()


class _Proposer:
    def __init__(self, network: Network, hardware: HardwareConfig, config: QuantizeConfig):
        self.network = network
        self.hardware = hardware
        self.config = config
        self.support = Support(network, hardware, config)
        self.reasons: dict[relax.Var, str] = {}
        self.flow: dict[relax.Var, Flow] = {}
        self.parent: dict[relax.Var, relax.Var] = {}
        self.requests: dict[tuple[relax.Var, int], _Request] = {}

    def run(self) -> Proposal:
        self._demand()
        for node in self.network.nodes.values():
            self._place(node)
        joins = self._propagate()
        return self._proposal(joins)

    # Demand ------------------------------------------------------------------

    def _demand(self) -> None:
        wanted: set[relax.Var] = set()
        for var, node in reversed(self.network.nodes.items()):
            reason = self.support.why_float(node)
            read = any(user in wanted for user, _port in self.network.uses[var])
            if reason is None and node.role is not Role.CONTRACTION and not read:
                reason = "no quantized layer reads its result"
            if reason is None:
                wanted.add(var)
            else:
                self.reasons[var] = reason

    # Flow --------------------------------------------------------------------

    def _place(self, node: Node) -> None:
        if node.var in self.reasons:
            return
        assert node.role is not None
        if node.role is not Role.CONTRACTION and not self._reads_integers(node):
            self.reasons[node.var] = "its operands are float: quantized after it"
            return
        self.flow[node.var] = _PLACERS[node.role](self, node)

    def _place_contraction(self, node: Node) -> Flow:
        for port, _var in node.variables:
            self._request(node, port)
        return Flow.ACCUMULATOR

    def _place_all_ports(self, node: Node) -> Flow:
        for port, _var in node.variables:
            self._request(node, port)
        return Flow.ACCUMULATOR

    def _place_moved(self, node: Node) -> Flow:
        return Flow.CODES

    def _place_sum(self, node: Node) -> Flow:
        if not node.is_binary():
            return self._place_affine(node)
        if self._place_same_origin(node):
            return Flow.TABLE
        kept = self._accumulating_port(node)
        for port, _var in node.variables:
            if port != kept:
                self._request(node, port)
        return Flow.ACCUMULATOR

    def _place_product(self, node: Node) -> Flow:
        if not node.is_binary():
            return self._place_affine(node)
        if self._place_same_origin(node):
            return Flow.TABLE
        return self._place_all_ports(node)

    def _place_affine(self, node: Node) -> Flow:
        """A clamp, or a sum or product with a constant: free on an accumulator."""
        ((port, var),) = node.variables
        state = self._state(var)
        if node.scalar_constants():
            self.parent[node.var] = var
            if state is Flow.TABLE:
                return Flow.TABLE
        if state is not Flow.ACCUMULATOR:
            self._request(node, port)
        return Flow.ACCUMULATOR

    def _place_pointwise(self, node: Node) -> Flow:
        if node.is_binary():
            if self._place_same_origin(node):
                return Flow.TABLE
            self.reasons[node.var] = "combines two tensors"
            return Flow.FLOAT
        if not node.scalar_constants():
            self.reasons[node.var] = "a constant per channel"
            return Flow.FLOAT
        ((port, var),) = node.variables
        self.parent[node.var] = var
        if self._state(var) is not Flow.TABLE:
            self._request(node, port)
        return Flow.TABLE

    def _place_same_origin(self, node: Node) -> bool:
        """X * sigmoid(x), x * clip(x + 3, 0, 6), ...: a function of the codes of x alone."""
        (_, left), (_, right) = node.variables
        origins = self._ancestors(right)
        origin = next((var for var in self._ancestors(left) if var in origins), None)
        if origin is None:
            return False
        self.parent[node.var] = origin
        self._tabulate(node, origin, self._operand_specs(node).data)
        return True

    def _tabulate(self, node: Node, origin: relax.Var, specs: tuple[QuantSpec, ...]) -> None:
        """Make every call between `origin` and `node` a table on the codes of `origin`."""
        for port, var in node.variables:
            if var != origin:
                self.requests.pop((node.var, port), None)
                self.flow[var] = Flow.TABLE
                self._tabulate(self.network.nodes[var], origin, specs)
            elif self._state(var) is not Flow.TABLE:
                self._request(node, port, specs)

    def _ancestors(self, var: relax.Var) -> list[relax.Var]:
        chain = [var]
        while chain[-1] in self.parent:
            chain.append(self.parent[chain[-1]])
        return chain

    def _accumulating_port(self, node: Node) -> int | None:
        """The operand that stays an accumulator.

        Of those that a contraction feeds and nothing else reads, it is the one computed last.
        """
        ports = [
            (self.network.order[var], port)
            for port, var in node.variables
            if self._accumulates(var) and same_shape(var, node.var)
        ]
        return max(ports)[1] if ports else None

    def _accumulates(self, var: relax.Var) -> bool:
        node = self.network.node(var)
        if (
            node is None
            or self._state(var) is not Flow.ACCUMULATOR
            or len(self.network.uses[var]) > 1
        ):
            return False
        if node.role is Role.CONTRACTION:
            return True
        return (
            not node.is_binary()
            and node.role in _AFFINE_ROLES
            and self._accumulates(node.variables[0][1])
        )

    def _reads_integers(self, node: Node) -> bool:
        return any(self._state(var) is not Flow.FLOAT for _port, var in node.variables)

    def _state(self, var: relax.Var) -> Flow:
        return self.flow.get(var, Flow.FLOAT)

    def _request(self, node: Node, port: int, specs: tuple[QuantSpec, ...] | None = None) -> None:
        if specs is None:
            operands = self._operand_specs(node)
            specs = operands.other if port else operands.data
        source = node.operands[port]
        assert isinstance(source, relax.Var)
        layer = layer_config(self.config, *node.names)
        own = layer.nbit_activation is not None or layer.activation_estimator is not None
        self.requests[node.var, port] = _Request(source, specs, own)

    def _operand_specs(self, node: Node) -> OperandSpecs:
        operands = self.hardware.operands(node.names[1])
        assert operands is not None, "support.py refuses these"
        return operands

    # Propagation ---------------------------------------------------------------

    def _propagate(self) -> list[frozenset[Place]]:
        """Move requests above moving calls; return the places that join one grid."""
        for var, node in reversed(self.network.nodes.items()):
            if node.role not in (Role.MOVE, Role.JOIN) or var in self.reasons:
                continue
            specs = self._common_specs(var)
            if specs is not None:
                for user in self.network.uses[var]:
                    del self.requests[user]
                for port, _source in node.variables:
                    self._request(node, port, specs)
            elif node.role is Role.JOIN:
                for port, _source in node.variables:
                    self._request(node, port)
        return self._unified()

    def _common_specs(self, var: relax.Var) -> tuple[QuantSpec, ...] | None:
        """The grids that everything that reads `var` asks for, if that is one and the same."""
        readers = [self.requests.get(use) for use in self.network.uses[var]]
        asked = {reader.specs for reader in readers if reader is not None and not reader.own}
        alike = len(asked) == 1 and all(reader and not reader.own for reader in readers)
        return asked.pop() if alike else None

    def _unified(self) -> list[frozenset[Place]]:
        """Places of one call whose operands share a grid; calls linked by moved codes join up."""
        groups: dict[relax.Var, set[Place]] = {}
        for var, node in self.network.nodes.items():
            if node.names[1] not in self.hardware.unified or var in self.reasons:
                continue
            joined: set[Place] = set()
            linked = {var}
            for port, _source in node.variables:
                place, join = self._origin(node, port)
                joined |= {place} if place else set()
                before = groups.get(join)
                for other, places in groups.items():
                    if places is before or place in places:
                        linked.add(other)
                        joined |= places
            groups |= dict.fromkeys(linked, joined)
        distinct = dict.fromkeys(frozenset(places) for places in groups.values())
        return [places for places in distinct if len(places) > 1]

    def _origin(self, node: Node, port: int) -> tuple[Place | None, relax.Var | None]:
        """What makes the codes at a port, before calls that only move them: a place, or a join."""
        while (node.var, port) not in self.requests:
            source = self.network.node(node.operands[port])
            if source is None or source.role is not Role.MOVE:
                return None, source.var if source else None
            node, port = source, source.variables[0][0]
        return Place(consumer=str(node.var.name), port=port), None

    # Result --------------------------------------------------------------------

    def _proposal(self, joins: list[frozenset[Place]]) -> Proposal:
        candidates: dict[Place, Candidate] = {}
        for (var, port), request in self.requests.items():
            place = Place(consumer=str(var.name), port=port)
            candidates[place] = self._activation(self.network.nodes[var], request)
        for var, node in self.network.nodes.items():
            if node.role is Role.CONTRACTION and var not in self.reasons:
                for port in node.constants:
                    place = Place(consumer=str(var.name), port=port)
                    candidates[place] = self._weight(node, port)
        reasons = {
            str(var.name): self.reasons[var] for var in self.network.nodes if var in self.reasons
        }
        return Proposal(candidates=candidates, unified=tuple(joins), reasons=reasons)

    def _activation(self, node: Node, request: _Request) -> Candidate:
        is_input = request.source in self.network.params
        return Candidate(
            source=str(request.source.name),
            kind=Kind.INPUT if is_input else Kind.ACTIVATION,
            specs=request.specs,
            names=node.names,
        )

    def _weight(self, node: Node, port: int) -> Candidate:
        axes = contraction_axes(node.call)
        return Candidate(
            source=None,
            kind=Kind.WEIGHT,
            specs=self._operand_specs(node).weight,
            axis=axes.weight_output if port == 1 else None,
            groups=axes.weight_blocks if port == 1 else 1,
            names=node.names,
        )


_AFFINE_ROLES = (Role.SUM, Role.PRODUCT, Role.CLAMP)

_PLACERS: dict[Role, Callable[[_Proposer, Node], Flow]] = {
    Role.CONTRACTION: _Proposer._place_contraction,
    Role.SUM: _Proposer._place_sum,
    Role.PRODUCT: _Proposer._place_product,
    Role.MEAN: _Proposer._place_all_ports,
    Role.JOIN: _Proposer._place_moved,
    Role.MOVE: _Proposer._place_moved,
    Role.CLAMP: _Proposer._place_affine,
    Role.POINTWISE: _Proposer._place_pointwise,
}
