"""RoundInRegisters: requantize by one conversion that rounds, and clamp as integers.

    before    cast(clamp(round(y) + zero_point))          in float32
    after     narrow(clamp(convert(y) + zero_point))      in int32, y = float32(acc) * multiplier

The conversion (CVTPS2DQ) rounds to nearest, ties to even, as `round` does, and narrowing with
saturation is the clamp. Both are exact where y fits into 32 bits: for multipliers below one. Other
calls keep their lowering.

Source: Intel SDM vol. 2, CVTPS2DQ and VPMOVUSDB.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import IRModule, relax, te, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.target.codegen import llvm_lookup_intrinsic_id

from tvm_quant.backend.cpu.isa import Isa
from tvm_quant.ir import constant_value, rewrite_functions
from tvm_quant.op import RequantizeMode, is_requantize
from tvm_quant.op.simulated_quantize import load_broadcast

MAX_MULTIPLIER = 0.99  # times 2**31 and a zero point fit into 32 bits
MAX_ZERO_POINT = 1 << 20


@tvm.transform.module_pass(opt_level=0, name="RoundInRegisters")
class RoundInRegisters:
    """Lower requantize calls to conversions that round, where `isa` has them."""

    def __init__(self, isa: Isa):
        self.isa = isa

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """Rewrite every Relax function."""
        if not self.isa.converts_rounded:
            return mod
        return rewrite_functions(mod, _Lowering(mod))


@mutator
class _Lowering(PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if not is_requantize(call) or not _fits(call):
            return call
        data, multiplier, _, zero_point = call.args
        qmin, qmax = int(call.attrs["qmin"]), int(call.attrs["qmax"])
        dtype = str(call.attrs["dtype"])

        def compute(data: te.Tensor, multiplier: te.Tensor, zero_point: te.Tensor) -> te.Tensor:
            def element(*index: tirx.Var) -> tirx.Expr:
                scaled = data(*index).astype("float32") * load_broadcast(multiplier, index)
                code = _rounded(scaled) + load_broadcast(zero_point, index)
                clamped = te.max(te.min(code, te.const(qmax, "int32")), te.const(qmin, "int32"))
                return clamped.astype(dtype)

            return te.compute(data.shape, element, name="requantize")

        return self.builder_.call_te(
            compute, data, multiplier, zero_point, primfunc_name_hint="requantize"
        )


def _fits(call: relax.Call) -> bool:
    """Whether no step leaves 32 bits."""
    data, multiplier, _, zero_point = call.args
    factors, zeros = constant_value(multiplier), constant_value(zero_point)
    return (
        RequantizeMode(str(call.attrs["mode"])) is RequantizeMode.FLOAT
        and str(call.attrs["dtype"]) in ("int8", "uint8")
        and str(data.ty.dtype) == "int32"
        and factors is not None
        and zeros is not None
        and bool(np.all(factors <= MAX_MULTIPLIER))
        and bool(np.all(np.abs(zeros) <= MAX_ZERO_POINT))
    )


def _rounded(value: tirx.Expr) -> tirx.Expr:
    """float32 to the nearest int32, ties to even."""
    function = llvm_lookup_intrinsic_id("llvm.lrint")
    return tirx.call_llvm_pure_intrin("int32", function, value)
