"""Equal constants become one, so that a weight used twice is stored and quantized once."""

from __future__ import annotations

import hashlib

from tvm import IRModule, relax
from tvm.ir.expr import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_quant.ir import constant_value


def share_constants(mod: IRModule) -> IRModule:
    """`mod` with one object for all constants of equal type and bytes in `main`."""
    gvar = mod.get_global_var("main")
    sharer = _Sharer(mod)
    sharer.builder_.update_func(gvar, sharer.visit_expr(mod[gvar]))
    return sharer.builder_.get()


@mutator
class _Sharer(PyExprMutator):
    def __init__(self, mod: IRModule):
        super().__init__(mod)
        self.found: dict[tuple[str, tuple[int, ...], bytes], relax.Expr] = {}

    def visit_generic_const_(self, op: GenericConst) -> relax.Expr:
        value = constant_value(op)
        if value is None:
            return op
        key = (str(value.dtype), value.shape, hashlib.sha256(value.tobytes()).digest())
        return self.found.setdefault(key, op)
