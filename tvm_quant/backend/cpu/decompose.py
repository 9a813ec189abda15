"""DecomposeInference: batch normalization in inference form as arithmetic with constants.

TVM's own pass also decomposes a `batch_norm` in training form, as if it were not; such a module is
left as it is.
"""

from __future__ import annotations

import tvm
from tvm import IRModule, relax

from tvm_quant.ir import op_name


@tvm.transform.module_pass(opt_level=0, name="DecomposeInference")
class DecomposeInference:
    """Spell out batch normalization, in modules that hold it in inference form only."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """Run TVM's pass where it keeps the meaning."""
        functions = [func for _, func in mod.functions_items() if isinstance(func, relax.Function)]
        if any(_trains(func) for func in functions):
            return mod
        return relax.transform.DecomposeOpsForInference()(mod)


def _trains(func: relax.Function) -> bool:
    found: list[relax.Expr] = []

    def visit(expr: relax.Expr) -> None:
        if op_name(expr) == "relax.nn.batch_norm" and bool(expr.attrs.training):
            found.append(expr)

    relax.analysis.post_order_visit(func, visit)
    return bool(found)
