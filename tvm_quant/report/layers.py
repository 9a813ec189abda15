"""The layers that a report has a line for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm import IRModule, relax

from tvm_quant.ir import constant_value, consumers, node_name, producers
from tvm_quant.ir.signature import main_function
from tvm_quant.op import Role, is_simulated, role_of

LAYERS = frozenset({Role.CONTRACTION, Role.SUM, Role.PRODUCT})
"""Calls whose results are worth a line in a report: those that compute with two tensors."""


def layer_variables(mod: IRModule) -> dict[str, str]:
    """{node name: variable} of the layers in execution order.

    A convolution or matrix product stands with its bias added. Where several calls carry the name
    of one node, the last one counts.
    """
    func = main_function(mod)
    uses, values = consumers(func), producers(func)
    layers: dict[str, str] = {}
    for var, value in values.items():
        if role_of(value) not in LAYERS or is_simulated(value):
            continue
        product = _biased_product(value, uses)
        named = var if product is None else product
        layers[node_name(func, named)] = str(var.name)
    return layers


def _biased_product(
    value: relax.Expr, uses: Mapping[relax.Var, Sequence[object]]
) -> relax.Var | None:
    """The product that a sum adds a constant to, if nothing else reads it."""
    if role_of(value) is not Role.SUM or constant_value(value.args[1]) is None:
        return None
    source = value.args[0]
    return source if isinstance(source, relax.Var) and len(uses[source]) == 1 else None
