"""A function as placement sees it: calls with ports, uses, roles and user names."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax

from tvm_quant.ir import bindings, constant_value, consumers, node_name, op_name
from tvm_quant.ir.bindings import flat_operands
from tvm_quant.op import Role, role_of


@dataclass(frozen=True, kw_only=True)
class Node:
    """One top-level call.

    Attributes:
        var: variable bound to the call.
        call: the call.
        role: None if quantization knows nothing about the operator.
        names: the user's name of the node and the operator's name.
        operands: operands with tuples flattened.
    """

    var: relax.Var
    call: relax.Call
    role: Role | None
    names: tuple[str, str]
    operands: tuple[relax.Expr, ...]

    @property
    def variables(self) -> list[tuple[int, relax.Var]]:
        """(port, variable) of the operands that are tensor variables."""
        return [
            (port, operand)
            for port, operand in enumerate(self.operands)
            if isinstance(operand, relax.Var) and isinstance(operand.ty, relax.TensorType)
        ]

    @property
    def constants(self) -> list[int]:
        """Ports of constant tensors."""
        return [p for p, operand in enumerate(self.operands) if constant_value(operand) is not None]

    def scalar_constants(self) -> bool:
        """Whether every constant tensor operand has one element."""
        values = (constant_value(operand) for operand in self.operands)
        return all(value.size == 1 for value in values if value is not None)

    def is_binary(self) -> bool:
        """Whether the call combines two run-time tensors."""
        return len(self.variables) == 2


def same_shape(left: relax.Expr, right: relax.Expr) -> bool:
    """Whether two tensors have one shape, symbolic dimensions included."""
    return str(left.ty.shape) == str(right.ty.shape)


def _bound(func: relax.Function) -> list[relax.Var]:
    """Everything that a function binds, in order."""
    return [binding.var for block in func.body.blocks for binding in block.bindings]


class Network:
    """Calls of a function by variable, and who uses each variable."""

    def __init__(self, func: relax.Function):
        self.uses = consumers(func)
        self.params = set(func.params)
        self.values = [*func.params, *_bound(func)]
        self.nodes: dict[relax.Var, Node] = {
            binding.var: Node(
                var=binding.var,
                call=binding.value,
                role=role_of(binding.value),
                names=(node_name(func, binding.var), op_name(binding.value) or "call"),
                operands=tuple(flat_operands(binding.value)),
            )
            for binding in bindings(func)
            if isinstance(binding.value, relax.Call)
        }
        self.order = {var: index for index, var in enumerate(self.nodes)}

    def node(self, var: relax.Expr) -> Node | None:
        """The call that computes `var`, or None for inputs and anything that is no call."""
        return self.nodes.get(var) if isinstance(var, relax.Var) else None
