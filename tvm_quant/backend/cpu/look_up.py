"""Look-ups in tables of constants, which are element-wise in their indices.

TVM finds any look-up opaque, so that no other kernel takes it in: its indices, 32 bits each, would
go through memory. These join the kernel that computes them.
"""

from __future__ import annotations

import tvm
from tvm import IRModule, relax, te, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_quant.ir import constant_value, op_name, rewrite_functions

LOOK_UP = "tvm_quant.look_up"  # attribute of their functions
PATTERN, ELEMENTWISE = "op_pattern", 0  # as relax.transform.FuseOps reads it


@tvm.transform.module_pass(opt_level=0, name="LowerLookUps")
class LowerLookUps:
    """Lower `take` from a constant vector by indices that are clipped."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """Rewrite every Relax function."""
        return rewrite_functions(mod, _Lowering(mod))


@tvm.transform.module_pass(opt_level=0, name="AnnotateLookUps")
class AnnotateLookUps:
    """Tell FuseOps that look-ups are element-wise, whatever TVM's analysis has found."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """Annotate the functions of `LowerLookUps`."""
        mod = mod.clone()
        for gvar, func in mod.functions_items():
            if isinstance(func, tirx.PrimFunc) and LOOK_UP in func.attrs:
                mod.update_func(gvar, func.with_attr(PATTERN, ELEMENTWISE))
        return mod


@mutator
class _Lowering(PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if op_name(call) != "relax.take" or str(call.attrs.mode) != "clip":
            return call
        table, indices = call.args
        values = constant_value(table)
        if values is None or values.ndim != 1 or str(indices.ty.dtype) != "int32":
            return call
        last = len(values) - 1

        def compute(table: te.Tensor, indices: te.Tensor) -> te.Tensor:
            def element(*index: tirx.Var) -> tirx.Expr:
                at = te.max(te.min(indices(*index), te.const(last, "int32")), te.const(0, "int32"))
                return table(at)

            return te.compute(indices.shape, element, name="look_up")

        return self.builder_.call_te(
            compute,
            table,
            indices,
            primfunc_name_hint="look_up",
            primfunc_attrs={LOOK_UP: True},
        )
