"""Realize: from simulated quantization in float to integer arithmetic.

Before    y = nn.relu(R.nn.conv2d(simulated_quantize(x, s, z), simulated_quantize(w, t, 0)) + b)
          q = simulated_quantize(y, u, v)
After     x' = quantize(x)                              uint8
          a  = R.nn.conv2d(x', w', out_dtype="int32")   w' = round(w / t), int8
          a' = a + (round(b / (s t)) - z sum(w'))       int32
          q  = requantize(a', s t / u, v)               uint8, with relu in its lower bound

Every scale leaves the arithmetic: a scale is carried beside the integers (integer/value.py) until
one requantize applies it. Each operator has one rule by its role (integer/rules.py). A call without
integer operands stays in float, between a dequantize and a quantize.

Needs every `simulated_quantize` to be calibrated (CalibrateWeights, CalibrateActivations).
"""

from __future__ import annotations

from dataclasses import replace

import tvm
from tvm import IRModule, relax

from tvm_quant.errors import IRContractError
from tvm_quant.ir import NODE_NAMES, bindings, constant, constant_value, node_name, op_name
from tvm_quant.ir.bindings import flat_operands
from tvm_quant.ir.reasons import float_reasons, with_reasons
from tvm_quant.ir.rebuild import Substitute
from tvm_quant.ir.signature import main_function
from tvm_quant.op import (
    Convention,
    RequantizeMode,
    convention_of,
    is_calibrated,
    is_simulated,
    is_threshold,
    quantize_numpy,
    role_of,
    scale_of,
    spec_of,
    why_no_integers,
)
from tvm_quant.transform.integer import RULES, rule_for
from tvm_quant.transform.integer.boundary import BOUNDARIES, has_constant_grid
from tvm_quant.transform.integer.codes import to_codes
from tvm_quant.transform.integer.emitter import Emitter
from tvm_quant.transform.integer.value import Codes, Float, Value


@tvm.transform.module_pass(opt_level=0, name="Realize")
class Realize:
    """Replace calibrated `simulated_quantize` by integer tensors.

    Args:
        mode: how accumulators are scaled to codes.
    """

    def __init__(self, mode: RequantizeMode = RequantizeMode.FLOAT):
        self.mode = mode

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """The module with `main` on integers."""
        func = main_function(mod)
        verify_calibrated(func)
        realized = _Realizer(func, self.mode).run()
        result = IRModule(dict(mod.functions_items()), attrs=mod.attrs)
        result.update_func(mod.get_global_var("main"), realized)
        return result


def verify_calibrated(func: relax.Function) -> None:
    """Check the contract of Realize.

    Raises:
        IRContractError: a quantizer has no scale.
    """
    for binding in bindings(func):
        if is_simulated(binding.value) and not is_calibrated(binding.value):
            raise IRContractError(
                f"Quantizer '{binding.var.name}' of node '{node_name(func, binding.var)}' "
                "has no scale. Run CalibrateWeights and CalibrateActivations before Realize."
            )


def quantizers_behind(func: relax.Function) -> dict[relax.Var, relax.Call]:
    """For each variable, what gives codes by a convention behind it: quantizer or thresholds."""
    behind: dict[relax.Var, relax.Call] = {}
    for binding in reversed(bindings(func)):
        known = behind.get(binding.var)
        if is_simulated(binding.value):
            foreign = convention_of(binding.value) is not Convention.BACKEND
            known = binding.value if foreign else None
        elif is_threshold(binding.value):
            known = binding.value
        if known is not None:
            behind.update(dict.fromkeys(relax.analysis.free_vars(binding.value), known))
    return behind


class _Realizer:
    def __init__(self, func: relax.Function, mode: RequantizeMode):
        self.func = func
        self.builder = relax.BlockBuilder()
        self.behind = quantizers_behind(func)
        exact = Convention.EXACT in map(_convention, self.behind.values())
        self.emitter = Emitter(self.builder, mode, exact)
        self.values: dict[relax.Var, Value] = {}
        self.names: dict[str, str] = {}
        self.reasons: dict[str, str] = {}

    def run(self) -> relax.Function:
        params = list(self.func.params)
        self.values = {param: Float(expr=param) for param in params}
        blocks = self.func.body.blocks
        with self.builder.function("main", params):
            if all(isinstance(block, relax.DataflowBlock) for block in blocks):
                with self.builder.dataflow():
                    self._visit_bindings()
                    result = self.builder.emit_output(self._result())
            else:
                self._visit_bindings()
                result = self.builder.emit(self._result())
            self.builder.emit_func_output(result)
        realized = self.builder.get()["main"].with_attrs(dict(self.func.attrs or {}))
        if self.behind:  # no placement has said why
            realized = with_reasons(realized, {**self.reasons, **float_reasons(self.func)})
        return realized.with_attr(NODE_NAMES, self.names)

    def _visit_bindings(self) -> None:
        for block in self.func.body.blocks:
            for binding in block.bindings:
                self.emitter.name = str(binding.var.name)
                self._look_ahead(binding.var)
                self.emitter.emitted.clear()
                self.values[binding.var] = self._realize(binding)
                name = node_name(self.func, binding.var)
                self.names.update(dict.fromkeys(self.emitter.emitted, name))

    def _look_ahead(self, var: relax.Var) -> None:
        call = self.behind.get(var)
        self.emitter.convention = Convention.BACKEND if call is None else _convention(call)
        reads = call is not None and is_simulated(call) and call.args[0].same_as(var)
        self.emitter.behind = _grid_of(call) if reads else None

    def _realize(self, binding: relax.Binding) -> Value:
        if isinstance(binding, relax.MatchCast):
            cast = relax.MatchCast(binding.var, self._in_float(binding.value), binding.ty)
            self.builder.emit_normalized(cast)
            return Float(expr=binding.var)
        value = binding.value
        if isinstance(value, relax.Var):
            return self._value(value)
        if is_simulated(value):
            return self._quantize(value)
        realized = self._at_boundary(value) or self._by_role(value)
        if realized is not None:
            return realized
        self._explain(binding.var, value)
        return Float(expr=self.emitter.emit(self._in_float(value)))

    def _explain(self, var: relax.Var, value: relax.Expr) -> None:
        """Why a call of float tensors stays in float."""
        if isinstance(value, relax.Call) and "float" in str(getattr(value.ty, "dtype", "float")):
            operands = [self._value(o) for o in flat_operands(value) if _is_tensor(o)]
            self.reasons[str(var.name)] = _why_float(value, operands)

    def _at_boundary(self, value: relax.Expr) -> Value | None:
        boundary = BOUNDARIES.get(str(op_name(value)))
        if boundary is None or not has_constant_grid(value):
            return None
        return boundary(self.emitter, value, self._value(value.args[0]))

    def _by_role(self, value: relax.Expr) -> Value | None:
        role = role_of(value)
        if role is None:
            return None
        operands = [self._value(operand) for operand in flat_operands(value) if _is_tensor(operand)]
        if all(isinstance(operand, Float) for operand in operands):
            return None
        rule = rule_for(self.emitter, value, operands)
        if rule is None and why_no_integers(value) is None:
            rule = RULES[role]
        return None if rule is None else rule(self.emitter, value, operands)

    def _quantize(self, call: relax.Call) -> Value:
        scale, zero_point = scale_of(call)
        spec = spec_of(call)
        known = constant_value(call.args[0])
        if known is None:
            value = self._value(call.args[0])
            return to_codes(self.emitter, value, scale, zero_point, spec, convention_of(call))
        codes = constant(quantize_numpy(known, scale, zero_point, spec))
        return replace(_grid_of(call), expr=codes)

    def _value(self, expr: relax.Expr) -> Value:
        return (
            self.values.get(expr, Float(expr=expr))
            if isinstance(expr, relax.Var)
            else Float(expr=expr)
        )

    def _in_float(self, expr: relax.Expr) -> relax.Expr:
        """`expr` with every variable replaced by its real values."""
        free = relax.analysis.free_vars(expr)
        known = {var: self.emitter.to_float(self.values[var]) for var in free if var in self.values}
        return Substitute(known).visit_expr(expr)

    def _result(self) -> relax.Expr:
        self.emitter.name = "result"
        return self._in_float(self.func.body.body)


def _convention(call: relax.Call) -> Convention:
    """That of a quantizer, or of thresholds, which compare exactly."""
    return Convention.EXACT if is_threshold(call) else convention_of(call)


def _grid_of(quantizer: relax.Call) -> Codes:
    scale, zero_point = scale_of(quantizer)
    return Codes(
        expr=quantizer,
        scale=scale.astype("float64"),
        zero_point=zero_point.astype("int64"),
        spec=spec_of(quantizer),
    )


def _why_float(call: relax.Call, operands: list[Value]) -> str:
    if role_of(call) is None:
        return "no integer form of this operator"
    if all(isinstance(operand, Float) for operand in operands):
        return "its operands are not quantized"
    return why_no_integers(call) or "no integer form for the grids of its operands"


def _is_tensor(expr: relax.Expr) -> bool:
    return isinstance(expr.ty, relax.TensorType)


__all__ = ["Realize", "verify_calibrated"]
