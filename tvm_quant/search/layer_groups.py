"""Layers whose bits move together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import IRModule, relax

from tvm_quant.ir import bindings, constant_value, node_name
from tvm_quant.ir.signature import main_function
from tvm_quant.op import Kind, Role, is_simulated, kind_of, role_of
from tvm_quant.placement import DisjointSets
from tvm_quant.transform.code_sources import quantizers_of


@dataclass(frozen=True, kw_only=True)
class LayerGroup:
    """Convolutions and matrix products that have one choice of bits.

    Attributes:
        nodes: their names, as the model file spells them, in execution order.
        layers: their variables, in the same order; several layers may have one name.
        weights: number of their weights, each counted once.
    """

    nodes: tuple[str, ...]
    layers: tuple[str, ...]
    weights: int

    @property
    def name(self) -> str:
        """Of the first layer, and how many more there are.

        >>> LayerGroup(nodes=("a", "b"), layers=("lv", "lv1"), weights=8).name
        'a +1'
        """
        more = len(self.nodes) - 1
        return f"{self.nodes[0]} +{more}" if more else self.nodes[0]


def layer_groups(mod: IRModule) -> list[LayerGroup]:
    """The groups of an annotated module, in execution order.

    Layers that read one tensor through a shared quantizer are in one group, as are layers that
    share a weight, and layers of one name, which no pattern can tell apart.
    """
    func = main_function(mod)
    values: dict[relax.Var, Any] = {binding.var: binding.value for binding in bindings(func)}
    layers = [var for var, value in values.items() if _is_quantized_layer(value, values)]
    together = DisjointSets[Any]()
    for var in layers:
        together.join_all([var, node_name(func, var), *_quantizers(values[var], values)])
    return [
        LayerGroup(
            nodes=tuple(dict.fromkeys(node_name(func, var) for var in group)),
            layers=tuple(str(var.name) for var in group),
            weights=_count_weights(group, values),
        )
        for group in together.sets(layers)
    ]


def _is_quantized_layer(value: relax.Expr, values: dict[relax.Var, Any]) -> bool:
    return role_of(value) is Role.CONTRACTION and bool(_quantizers(value, values))


def _quantizers(call: relax.Call, values: dict[relax.Var, Any]) -> list[relax.Call]:
    return [found for operand in call.args for found in quantizers_of(operand, values)]


def _count_weights(group: list[relax.Var], values: dict[relax.Var, Any]) -> int:
    weights = {
        call
        for var in group
        for call in (values.get(operand) for operand in values[var].args)
        if is_simulated(call) and kind_of(call) is Kind.WEIGHT
    }
    known = [constant_value(call.args[0]) for call in weights]
    return sum(int(np.size(value)) for value in known if value is not None)
