"""Slices: one quantized layer as a function of the float tensors that it reads.

Before    q = simulated_quantize(x * r, s, z)
          y = R.nn.conv2d(R.nn.max_pool2d(q), simulated_quantize(w, t)) + b
After     slice(x):  all of it

In a network where everything else is float, a slice can stand in for the layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import IRModule, relax

from tvm_quant.ir import bindings, consumers
from tvm_quant.ir.rebuild import Substitute, emit_again
from tvm_quant.ir.signature import main_function
from tvm_quant.op import Kind, Role, is_simulated, kind_of, role_of
from tvm_quant.transform.code_sources import quantizers_of
from tvm_quant.transform.correct_bias import bias_of


@dataclass(frozen=True, kw_only=True)
class Slice:
    """A layer as a function.

    Attributes:
        end: variable of the float network that it computes: the layer, or the sum with its bias.
        reads: variables of the float network that it takes, in order.
        function: takes them, returns a tuple of one.
    """

    end: str
    reads: tuple[str, ...]
    function: relax.Function


class Slicer:
    """Cuts layers out of a calibrated module.

    Args:
        reference: the float module that it was made from.
        calibrated: the module with quantizers.
        activations, weights: whether their quantizers stay.
    """

    def __init__(
        self, reference: IRModule, calibrated: IRModule, *, activations: bool, weights: bool
    ):
        func = main_function(reference)
        self.ends = layer_ends(reference)
        self.known = {str(param.name) for param in func.params}
        self.known |= {str(binding.var.name) for binding in bindings(func)}
        self.bindings = {b.var: b for b in bindings(main_function(calibrated))}
        self.values: dict[relax.Var, Any] = {var: b.value for var, b in self.bindings.items()}
        self.order = {var: index for index, var in enumerate(self.values)}
        self.named = {str(var.name): var for var in self.values}
        self.activations, self.weights = activations, weights

    def slice(self, layer: str) -> Slice:
        """The slice of a layer, by the variable of its contraction in the float module."""
        end = self.ends[layer]
        inside: set[relax.Var] = set()
        reads: dict[relax.Var, None] = {}
        self._collect(self.named[end], inside, reads)
        return Slice(
            end=end,
            reads=tuple(str(var.name) for var in reads),
            function=self._function(sorted(inside, key=self.order.__getitem__), list(reads)),
        )

    def _collect(
        self, var: relax.Var, inside: set[relax.Var], reads: dict[relax.Var, None]
    ) -> None:
        """Everything from the tensors that are float in the float network to `var`."""
        inside.add(var)
        for operand in relax.analysis.free_vars(self.values[var]):
            if operand in inside or not isinstance(operand.ty, relax.TensorType):
                continue
            if self._is_inside(operand, var):
                self._collect(operand, inside, reads)
            else:
                reads[operand] = None

    def _is_inside(self, operand: relax.Var, reader: relax.Var) -> bool:
        value = self.values.get(operand)
        if value is None:
            return False
        if is_simulated(self.values[reader]):  # it reads what the float network computes
            return str(operand.name) not in self.known
        layer = role_of(value) is Role.CONTRACTION and role_of(self.values[reader]) is Role.SUM
        known = str(operand.name) in self.known
        return layer or not known or bool(quantizers_of(operand, self.values))

    def _function(self, inside: list[relax.Var], reads: list[relax.Var]) -> relax.Function:
        builder = relax.BlockBuilder()
        params = [relax.Var(str(var.name), var.ty) for var in reads]
        substitute = Substitute(dict(zip(reads, params, strict=True)))
        with builder.function("slice", params):
            for var in inside:
                value = self.values[var]
                if is_simulated(value) and not self._stays(value):
                    substitute.values[var] = substitute.visit_expr(value.args[0])
                else:
                    substitute.values[var] = emit_again(builder, self.bindings[var], substitute)
            result = builder.emit(relax.Tuple([substitute.values[inside[-1]]]))
            builder.emit_func_output(result)
        # Variables and symbolic dimensions belong to one function.
        return relax.utils.copy_with_new_vars(builder.get()["slice"])

    def _stays(self, quantizer: relax.Call) -> bool:
        return self.weights if kind_of(quantizer) is Kind.WEIGHT else self.activations


def layer_ends(mod: IRModule) -> Mapping[str, str]:
    """Where the layer of each contraction ends: {variable: itself, or its sum with a bias}."""
    func = main_function(mod)
    values = {binding.var: binding.value for binding in bindings(func)}
    uses = consumers(func)
    ends = {}
    for var, value in values.items():
        if role_of(value) is Role.CONTRACTION:
            bias = bias_of(var, values, uses)
            ends[str(var.name)] = str((var if bias is None else bias).name)
    return ends
