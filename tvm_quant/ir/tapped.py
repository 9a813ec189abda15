"""Looking inside a module: the same network, with the values of chosen variables as results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm
from tvm import IRModule, relax

from tvm_quant.errors import UnsupportedError
from tvm_quant.ir.bindings import bindings
from tvm_quant.ir.signature import main_function


def tapped(mod: IRModule, names: Sequence[str]) -> IRModule:
    """`mod` whose `main` returns the variables `names` as a tuple; what nobody needs is gone.

    Parameters can be among them.

    Raises:
        UnsupportedError: no such variable at the top level of `main`.
    """
    func = main_function(relax.transform.ToNonDataflow()(mod))
    variables = [*func.params, *(binding.var for binding in bindings(func))]
    wanted = _chosen({str(var.name): var for var in variables}, names)
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
