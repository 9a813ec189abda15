"""Simulate: spell out `simulated_quantize` in float operators.

Before    q = simulated_quantize(x, s, z)
After     q = (clip(round(x / s) + z, qmin, qmax) - z) * s

For debugging: the module computes in float what Realize computes in integers, and holds nothing
that another tool would not know. Uncalibrated quantizers disappear.
"""

from __future__ import annotations

import tvm
from tvm import IRModule, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_quant.ir import constant
from tvm_quant.ir.signature import main_function
from tvm_quant.op import is_calibrated, is_simulated, scale_of, spec_of


@tvm.transform.module_pass(opt_level=0, name="Simulate")
class Simulate:
    """Replace every `simulated_quantize` in `main` by float arithmetic."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """Run the pass."""
        simulator = _Simulator(mod)
        func = simulator.visit_expr(main_function(mod))
        simulator.builder_.update_func(mod.get_global_var("main"), func)
        return simulator.builder_.get()


@mutator
class _Simulator(PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if not is_simulated(call):
            return call
        if not is_calibrated(call):
            return call.args[0]
        scale, zero_point = scale_of(call)
        spec = spec_of(call)
        step, zero = constant(scale), constant(zero_point.astype("float32"))
        codes = relax.op.add(relax.op.round(relax.op.divide(call.args[0], step)), zero)
        codes = relax.op.clip(codes, float(spec.qmin), float(spec.qmax))
        return relax.op.multiply(relax.op.subtract(codes, zero), step)
