"""Looking inside a module: the same network, with the values of chosen variables as outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm
from tvm import IRModule, relax

from tvm_quant.errors import UnsupportedError
from tvm_quant.ir import bindings, constant_value, consumers, node_name, producers
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


def tapped(mod: IRModule, names: Sequence[str]) -> IRModule:
    """`mod` whose `main` returns the variables `names` as a tuple; what nobody needs is gone.

    Raises:
        UnsupportedError: no such variable at the top level of `main`.
    """
    func = main_function(relax.transform.ToNonDataflow()(mod))
    wanted = _chosen({str(b.var.name): b.var for b in bindings(func)}, names)
    outputs = [relax.Var(f"{name}_tap", var.ty) for name, var in wanted.items()]
    copies = [
        relax.VarBinding(output, var) for output, var in zip(outputs, wanted.values(), strict=True)
    ]
    body = relax.SeqExpr([*func.body.blocks, relax.BindingBlock(copies)], relax.Tuple(outputs))
    types = relax.TupleType([var.ty for var in outputs])
    with_taps = relax.Function(func.params, body, types, func.is_pure, func.attrs)
    result = IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    result["main"] = relax.utils.copy_with_new_vars(with_taps)
    return _CLEAN(result)


_CLEAN = tvm.transform.Sequential(
    [relax.transform.DeadCodeElimination(), relax.transform.ConvertToDataflow(min_size=1)]
)


def _chosen(variables: Mapping[str, relax.Var], names: Sequence[str]) -> dict[str, relax.Var]:
    missing = [name for name in names if name not in variables]
    if missing:
        raise UnsupportedError(f"the module has no variable {', '.join(map(repr, missing))}")
    return {name: variables[name] for name in names}
