"""Looking inside a module: the same network, with the values of chosen variables as outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm
from tvm import IRModule, relax

from tvm_quant.errors import UnsupportedError
from tvm_quant.ir import bindings, node_name
from tvm_quant.ir.signature import main_function
from tvm_quant.op import Role, is_simulated, role_of

LAYERS = frozenset({Role.CONTRACTION, Role.SUM, Role.PRODUCT})
"""Calls whose results are worth a line in a report: those that compute with two tensors."""


def layer_variables(mod: IRModule) -> dict[str, str]:
    """{node name: variable} of the layers in execution order.

    Several calls may carry the name of one node (a product and its bias); the last one counts.
    """
    func = main_function(mod)
    return {
        node_name(func, binding.var): str(binding.var.name)
        for binding in bindings(func)
        if isinstance(binding.value, relax.Call)
        and not is_simulated(binding.value)
        and role_of(binding.value) in LAYERS
    }


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
