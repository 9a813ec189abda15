"""What each variable will hold once the network runs on integers, and which ports need a quantizer.

1. *Support*: which calls can run on integers (support.py).
2. *Demand*, backwards: convolutions and matrix products always do, and averages on hardware whose
   sums cannot be read back; every other call does only if a quantized one reads its result, through
   whatever lies between. A tail of the network that no convolution reads stays in float.
3. *Flow*, forwards: what each variable holds (`Holds`). A port needs a quantizer unless the call
   goes on with what its operand holds, as the backends' kernels do: bias and clamp on an
   accumulator, a function of a table.

A sum keeps one operand as an accumulator where a contraction feeds it alone: the other operand is
added to it at the accumulator's scale, which costs one rounding less than quantizing both.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from tvm import relax

from tvm_quant.hardware import Grid, OperandGrids
from tvm_quant.op import Role
from tvm_quant.placement.network import Network, Node, same_shape
from tvm_quant.placement.support import Support


class Holds(Enum):
    """What a variable holds once the network runs on integers."""

    FLOAT = "float"
    ACCUMULATOR = "accumulator"  # wide integers, with a scale per channel
    CODES = "codes"  # moved codes of a quantized tensor
    TABLE = "table"  # a function of the codes of one tensor


class Flow:
    """The reasons for float, and the ports that ask for a quantizer.

    Attributes:
        asks: accepted grids of each port that needs a quantizer, by (variable, port).
        reasons: per variable of a call that stays in float, why.
    """

    def __init__(self, network: Network, support: Support):
        self.network = network
        self.support = support
        self.asks: dict[tuple[relax.Var, int], tuple[Grid, ...]] = {}
        self.reasons: dict[relax.Var, str] = {}
        self._holds: dict[relax.Var, Holds] = {}
        self._parent: dict[relax.Var, relax.Var] = {}
        self._leaders = {Role.CONTRACTION}
        if not support.hardware.sums_leave:
            self._leaders.add(Role.MEAN)
        self._demand()
        for node in network.nodes.values():
            self._place(node)

    # Demand ------------------------------------------------------------------

    def _demand(self) -> None:
        wanted: set[relax.Var] = set()
        for var, node in reversed(self.network.nodes.items()):
            reason = self.support.why_float(node)
            read = any(user in wanted for user, _port in self.network.uses[var])
            if reason is None and node.role not in self._leaders and not read:
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
        if node.role in MOVING:
            self._holds[node.var] = Holds.CODES if self._reads_integers(node) else Holds.FLOAT
        elif node.role is Role.CONTRACTION or self._reads_integers(node):
            self._holds[node.var] = _PLACERS[node.role](self, node)
        else:
            self.reasons[node.var] = "its operands are float: quantized after it"

    def _place_contraction(self, node: Node) -> Holds:
        for port in node.constants:
            self.asks[node.var, port] = self._operand_grids(node).weight
        return self._place_all_ports(node)

    def _place_all_ports(self, node: Node) -> Holds:
        for port, _var in node.variables:
            self._ask(node, port)
        return Holds.ACCUMULATOR

    def _place_sum(self, node: Node) -> Holds:
        if not node.is_binary():
            return self._place_affine(node)
        if self._place_same_origin(node):
            return Holds.TABLE
        kept = self._accumulating_port(node) if self.support.hardware.sums_on_accumulators else None
        for port, _var in node.variables:
            if port != kept:
                self._ask(node, port)
        return Holds.ACCUMULATOR

    def _place_product(self, node: Node) -> Holds:
        if not node.is_binary():
            return self._place_affine(node)
        if self._place_same_origin(node):
            return Holds.TABLE
        return self._place_all_ports(node)

    def _place_affine(self, node: Node) -> Holds:
        """A clamp, or a sum or product with a constant: free on an accumulator."""
        ((port, var),) = node.variables
        state = self._state(var)
        if node.scalar_constants():
            self._parent[node.var] = var
            if state is Holds.TABLE:
                return Holds.TABLE
        if state is not Holds.ACCUMULATOR:
            self._ask(node, port)
        return Holds.ACCUMULATOR

    def _place_pointwise(self, node: Node) -> Holds:
        if node.is_binary():
            if self._place_same_origin(node):
                return Holds.TABLE
            self.reasons[node.var] = "combines two tensors"
            return Holds.FLOAT
        if not node.scalar_constants():
            self.reasons[node.var] = "a constant per channel"
            return Holds.FLOAT
        ((port, var),) = node.variables
        self._parent[node.var] = var
        if self._state(var) is not Holds.TABLE:
            self._ask(node, port)
        return Holds.TABLE

    def _place_same_origin(self, node: Node) -> bool:
        """X * sigmoid(x), x * clip(x + 3, 0, 6), ...: a function of the codes of x alone."""
        (_, left), (_, right) = node.variables
        origins = self._ancestors(right)
        origin = next((var for var in self._ancestors(left) if var in origins), None)
        if origin is None:
            return False
        self._parent[node.var] = origin
        self._tabulate(node, origin, self._operand_grids(node).data)
        return True

    def _tabulate(self, node: Node, origin: relax.Var, accepted: tuple[Grid, ...]) -> None:
        """Make every call between `origin` and `node` a table on the codes of `origin`."""
        for port, var in node.variables:
            if var != origin:
                self.asks.pop((node.var, port), None)
                self._holds[var] = Holds.TABLE
                self._tabulate(self.network.nodes[var], origin, accepted)
            elif self._state(var) is not Holds.TABLE:
                self._ask(node, port, accepted)

    def _ancestors(self, var: relax.Var) -> list[relax.Var]:
        chain = [var]
        while chain[-1] in self._parent:
            chain.append(self._parent[chain[-1]])
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
            or self._state(var) is not Holds.ACCUMULATOR
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
        return any(self._state(var) is not Holds.FLOAT for _port, var in node.variables)

    def _state(self, var: relax.Var) -> Holds:
        return self._holds.get(var, Holds.FLOAT)

    def _ask(self, node: Node, port: int, accepted: tuple[Grid, ...] | None = None) -> None:
        operands = self._operand_grids(node)
        self.asks[node.var, port] = accepted or (operands.other if port else operands.data)

    def _operand_grids(self, node: Node) -> OperandGrids:
        operands = self.support.operands(node)
        assert operands is not None, "support.py refuses these"
        return operands


MOVING = (Role.MOVE, Role.JOIN)
_AFFINE_ROLES = (Role.SUM, Role.PRODUCT, Role.CLAMP)

_PLACERS: dict[Role, Callable[[Flow, Node], Holds]] = {
    Role.CONTRACTION: Flow._place_contraction,
    Role.SUM: Flow._place_sum,
    Role.PRODUCT: Flow._place_product,
    Role.MEAN: Flow._place_all_ports,
    Role.CLAMP: Flow._place_affine,
    Role.POINTWISE: Flow._place_pointwise,
}
