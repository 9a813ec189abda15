"""CorrectBias: remove the mean shift that quantization adds to each weighted layer.

Before    y = R.nn.conv2d(q, simulated_quantize(w)) + b
After     y = R.nn.conv2d(q, simulated_quantize(w)) + b'

`fast` predicts the shift of each output channel from the rounding of the weights and the profiled
mean of the layer's input (predict_shift.py). `full` measures it (measure_shift.py): layer by layer
in execution order, with the corrected layers before it, b' = b + E[y_float] - E[y_quantized] over
calibration samples, of which quiet ones count more. A layer without a bias gets one. No layer is
left out for the size of its bias.

Needs calibrated quantizers; comes after MatchScales.

Source: Nagel et al., arXiv:1906.04721, section 4.2 and appendix D.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tvm
from tvm import IRModule, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_quant.config import BiasCorrection, QuantizeConfig
from tvm_quant.errors import ConfigError
from tvm_quant.ir import bindings, constant, constant_value, consumers, op_name, with_names_of
from tvm_quant.ir.signature import main_function
from tvm_quant.op import contraction_axes
from tvm_quant.statistics import Statistics
from tvm_quant.transform.channel_vector import Array
from tvm_quant.transform.measure_shift import measure_shifts
from tvm_quant.transform.predict_shift import predict_shifts

Batches = Iterable[Mapping[str, Array]]


@tvm.transform.module_pass(opt_level=0, name="CorrectBias")
class CorrectBias:
    """Correct the bias of every quantized convolution and matmul with a constant.

    Args:
        config: `bias_correction` and `bias_samples`.
        statistics: profiled means, for `fast`.
        dataset: calibration batches by input name, for `full`.
        progress: show a bar, for `full`.

    Raises:
        ConfigError: `full` without a dataset.
    """

    def __init__(
        self,
        config: QuantizeConfig | None = None,
        statistics: Statistics | None = None,
        dataset: Batches | None = None,
        *,
        progress: bool = False,
    ):
        self.config = config or QuantizeConfig()
        if self.config.bias_correction is BiasCorrection.FULL and dataset is None:
            raise ConfigError(
                "bias_correction='full' measures on calibration samples, and there are none. Give "
                "a data set, or use 'fast' or 'none'."
            )
        self.statistics = statistics
        self.dataset = dataset
        self.progress = progress

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """Run the pass."""
        mode = self.config.bias_correction
        if mode is BiasCorrection.FULL and self.dataset is not None:
            shifts = measure_shifts(
                mod, self.dataset, samples=self.config.bias_samples, progress=self.progress
            )
        elif mode is not BiasCorrection.NONE and self.statistics is not None:
            shifts = predict_shifts(mod, self.statistics)
        else:
            return mod
        return add_to_biases(mod, {var: -shift for var, shift in shifts.items()})


def add_to_biases(mod: IRModule, changes: Mapping[str, Array]) -> IRModule:
    """Add a vector to the output channels of contractions, by variable; inserts missing biases."""
    gvar = mod.get_global_var("main")
    adder = _Adder(mod, changes)
    func = adder.visit_expr(mod[gvar])
    adder.builder_.update_func(gvar, with_names_of(func, adder.products))
    return adder.builder_.get()


def bias_of(
    var: relax.Var, values: Mapping[relax.Var, Any], uses: Mapping[relax.Var, Any]
) -> relax.Var | None:
    """The variable bound to `var + constant`, if that is all that `var` is used for."""
    if len(uses[var]) != 1:
        return None
    ((user, port),) = uses[var]
    call = values.get(user)
    if call is None or op_name(call) != "relax.add" or constant_value(call.args[1 - port]) is None:
        return None
    return user if str(call.ty.shape) == str(var.ty.shape) else None


@mutator
class _Adder(PyExprMutator):
    def __init__(self, mod: IRModule, changes: Mapping[str, Array]):
        super().__init__(mod)
        func = main_function(mod)
        values = {binding.var: binding.value for binding in bindings(func)}
        uses = consumers(func)
        self.in_place: dict[relax.Var, Array] = {}
        self.inserted: dict[relax.Var, Array] = {}
        self.products: dict[str, str] = {}
        for var, call in values.items():
            if str(var.name) not in changes:
                continue
            shape = [1] * int(var.ty.ndim)
            shape[contraction_axes(call).output] = -1
            change = changes[str(var.name)].reshape(shape)
            bias = bias_of(var, values, uses)
            if bias is None:
                self.inserted[var] = change
            else:
                self.in_place[bias] = change

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if binding.var in self.in_place:
            binding = relax.VarBinding(binding.var, self._corrected(binding))
        if binding.var not in self.inserted:
            super().visit_var_binding_(binding)
            return
        product = self.builder_.emit(
            self.visit_expr(binding.value), name_hint=f"{binding.var.name}_product"
        )
        self.products[str(product.name)] = str(binding.var.name)
        bias = constant(self.inserted[binding.var].astype("float32"))
        super().visit_var_binding_(relax.VarBinding(binding.var, relax.op.add(product, bias)))

    def _corrected(self, binding: relax.VarBinding) -> relax.Call:
        change = self.in_place[binding.var]
        left, right = binding.value.args
        if constant_value(right) is None:
            left, right = right, left
        bias = constant_value(right)
        assert bias is not None, "bias_of() checked it"
        return relax.op.add(left, constant((bias + change).astype("float32")))
