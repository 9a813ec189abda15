"""Annotate: place uncalibrated `simulated_quantize` calls at the input ports of quantized calls.

Before    y  = R.nn.conv2d(x, w)
After     qx = simulated_quantize(x, Kind.INPUT)
          qw = simulated_quantize(w, Kind.WEIGHT)
          y  = R.nn.conv2d(qx, qw)

Ports that read one tensor with one grid share one call. Without scales the calls are the identity,
so the result computes the original network. Why a call stays in float is recorded in the function
attribute `tvm_quant.float_reasons`. If everything does, a warning says so.

Needs Prepare. Idempotent: what is annotated already is left alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import tvm
from tvm import IRModule, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_quant.config import QuantizeConfig
from tvm_quant.hardware import hardware_row
from tvm_quant.ir import node_name
from tvm_quant.ir.reasons import with_reasons
from tvm_quant.ir.signature import main_function
from tvm_quant.op import is_annotated, simulated_quantize
from tvm_quant.placement import Place, Quantizer, Setup, choose, propose


class NothingQuantizedWarning(UserWarning):
    """The whole network stays in float."""


@tvm.transform.module_pass(opt_level=0, name="Annotate")
class Annotate:
    """Wrap the operands of each call that runs on integers.

    Args:
        config: what to quantize and how; its hardware row names the grids.
    """

    def __init__(self, config: QuantizeConfig | None = None):
        self.config = config or QuantizeConfig()

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """The module with quantizers in `main`."""
        func = main_function(mod)
        if is_annotated(mod):
            return mod
        proposal = propose(func, hardware_row(self.config.hardware), self.config)
        setup = choose(proposal, self.config)
        if not setup.quantizers:
            _warn_nothing_quantized(func, setup.reasons)
        return annotate_with(mod, setup)


def annotate_with(mod: IRModule, setup: Setup) -> IRModule:
    """Place the quantizers of `setup` in `main`."""
    annotator = _Annotator(mod, setup)
    gvar = mod.get_global_var("main")
    func = with_reasons(annotator.visit_expr(mod[gvar]), setup.reasons)
    annotator.builder_.update_func(gvar, func)
    return annotator.builder_.get()


def _warn_nothing_quantized(func: relax.Function, reasons: Mapping[str, str]) -> None:
    lines = [f"'{node_name(func, var)}': {reason}" for var, reason in reasons.items()]
    more = f"; and {len(lines) - 5} more" if len(lines) > 5 else ""
    why = "; ".join(lines[:5]) or "it holds no operator that runs on integers"
    warnings.warn(
        f"Nothing was quantized, the network stays in float: {why}{more}.",
        NothingQuantizedWarning,
        stacklevel=2,
    )


@mutator
class _Annotator(PyExprMutator):
    def __init__(self, mod: IRModule, setup: Setup):
        super().__init__(mod)
        self.setup = setup
        self.shared: dict[tuple[relax.Expr, Quantizer], relax.Var] = {}

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> relax.BindingBlock:
        self.shared.clear()  # what a block binds may not be visible in the next
        return super().visit_dataflow_block_(block)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if isinstance(binding.value, relax.Call):
            wrapped = self._wrap_call(binding.value, str(binding.var.name))
            binding = relax.VarBinding(binding.var, wrapped)
        super().visit_var_binding_(binding)

    def _wrap_call(self, call: relax.Call, consumer: str) -> relax.Call:
        port = 0
        args: list[relax.Expr] = []
        for operand in call.args:
            fields = operand.fields if isinstance(operand, relax.Tuple) else [operand]
            new = [
                self._wrap(operand, Place(consumer, port + index))
                for index, operand in enumerate(fields)
            ]
            args.append(relax.Tuple(new) if isinstance(operand, relax.Tuple) else new[0])
            port += len(fields)
        if all(new.same_as(old) for new, old in zip(args, call.args, strict=True)):
            return call
        return relax.Call(call.op, args, call.attrs, call.ty_args)

    def _wrap(self, operand: relax.Expr, place: Place) -> relax.Expr:
        """The operand behind the quantizer at its source, then behind that of the port."""
        places = [Place.after(str(operand.name))] if isinstance(operand, relax.Var) else []
        wrapped = operand
        for quantizer in map(self.setup.quantizers.get, [*places, place]):
            if quantizer is not None:
                wrapped = self._quantized(wrapped, quantizer, place.op)
        return wrapped

    def _quantized(self, operand: relax.Expr, quantizer: Quantizer, consumer: str) -> relax.Expr:
        key = (operand, quantizer)
        if key not in self.shared:
            call = simulated_quantize(
                self.visit_expr(operand),
                spec=quantizer.spec,
                kind=quantizer.kind,
                group=quantizer.group,
            )
            source = operand.name if isinstance(operand, relax.Var) else consumer + "_weight"
            self.shared[key] = self.builder_.emit(call, name_hint=f"{source}_q")
        return self.shared[key]
