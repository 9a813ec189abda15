"""Equalize: balance the weight ranges of consecutive layers. Optional, needs no data.

Before    y = W2 relu(W1 x + b1)
After     y = (W2 S) relu((W1 / S) x + b1 / S)

with S = diag(s) and s_c = sqrt(range(W1_c) / range(W2_c)),
which is the same function, since relu(a x) = a relu(x) for a > 0. Every channel then has the same
range in both weights, so that a single scale for the whole tensor fits it. With a scale per channel
it gains little. Chains are swept until the factors settle. Weights that several layers share stay.

Needs Prepare; comes before Annotate.

Source: Nagel et al., arXiv:1906.04721, section 4.1, eq. 11.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import IRModule, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_quant.config import QuantizeConfig
from tvm_quant.ir import bindings, constant, constant_value, consumers, op_name
from tvm_quant.ir.signature import main_function
from tvm_quant.op import ContractionAxes, Role, contraction_axes, role_of
from tvm_quant.transform.channel_scale import Array, divide_inputs
from tvm_quant.transform.channel_vector import weight_by_output

#: Operators that commute with a positive factor per channel and keep channels apart.
_HOMOGENEOUS = frozenset(
    {"relax.nn.relu", "relax.nn.leakyrelu", "relax.nn.max_pool2d", "relax.nn.avg_pool2d"}
)
MAX_SWEEPS = 20
SETTLED = 1e-3


@tvm.transform.module_pass(opt_level=0, name="Equalize")
class Equalize:
    """Equalize the weights of each pair of layers that only a homogeneous function separates.

    Args:
        config: `equalize` switches the pass on.
    """

    def __init__(self, config: QuantizeConfig | None = None):
        self.config = config or QuantizeConfig(equalize=True)

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """Run the pass."""
        if not self.config.equalize:
            return mod
        func = main_function(mod)
        pairs = list(_pairs(func))
        weights = _sweep(pairs)
        if not weights:
            return mod
        writer = _Writer(mod, weights)
        writer.builder_.update_func(mod.get_global_var("main"), writer.visit_expr(func))
        return writer.builder_.get()


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """Two contractions, and the bias between them if there is one."""

    first: relax.VarBinding
    bias: relax.VarBinding | None
    second: relax.VarBinding


def _pairs(func: relax.Function) -> Iterator[_Pair]:
    values = {binding.var: binding for binding in bindings(func)}
    uses = consumers(func)
    weights = Counter(b.value.args[1] for b in values.values() if _has_weight(b.value))
    for first in values.values():
        if not _has_weight(first.value) or weights[first.value.args[1]] > 1:
            continue
        bias, var = None, first.var
        while len(uses[var]) == 1 and uses[var][0][0] in values:
            following = values[uses[var][0][0]]
            call = following.value
            if _has_weight(call) and call.args[0].same_as(var):
                same_axis = contraction_axes(call).data == contraction_axes(first.value).output
                if same_axis and weights[call.args[1]] == 1:
                    yield _Pair(first=first, bias=bias, second=following)
                break
            is_bias = op_name(call) == "relax.add" and constant_value(call.args[1]) is not None
            if not (is_bias and bias is None and var == first.var) and (
                op_name(call) not in _HOMOGENEOUS
            ):
                break
            bias = following if is_bias else bias
            var = following.var


def _has_weight(call: relax.Expr) -> bool:
    return role_of(call) is Role.CONTRACTION and constant_value(call.args[1]) is not None


def _sweep(pairs: list[_Pair]) -> dict[relax.Var, Array]:
    """New constants by variable of the call that has them as operand 1."""
    constants: dict[relax.Var, Array] = {}
    for pair in pairs:
        for binding in (pair.first, pair.bias, pair.second):
            if binding is not None:
                constants[binding.var] = _operand(binding.value)
    for _ in range(MAX_SWEEPS):
        largest = max((_equalize(pair, constants) for pair in pairs), default=0.0)
        if largest < SETTLED:
            break
    return constants


def _equalize(pair: _Pair, constants: dict[relax.Var, Array]) -> float:
    """Scale one pair in place; how far its factors are from 1, in octaves."""
    first_axes = contraction_axes(pair.first.value)
    second_axes = contraction_axes(pair.second.value)
    before = np.abs(weight_by_output(constants[pair.first.var], first_axes)).max(axis=(1, 2))
    after = _range_by_input(constants[pair.second.var], pair.second.value)
    usable = (before > 0) & (after > 0)
    factors = np.sqrt(np.where(usable, before, 1.0) / np.where(usable, after, 1.0))
    shape = [1] * int(pair.first.var.ty.ndim)
    shape[first_axes.output] = -1
    constants[pair.first.var] = _divide_outputs(constants[pair.first.var], factors, first_axes)
    if pair.bias is not None:
        bias = constants[pair.bias.var]
        rank = max(bias.ndim, len(shape) - first_axes.output)  # a bias may be one number
        constants[pair.bias.var] = bias / factors.reshape(shape[len(shape) - rank :])
    constants[pair.second.var] = divide_inputs(constants[pair.second.var], 1 / factors, second_axes)
    return float(np.abs(np.log2(factors)).max())


def _divide_outputs(weight: Array, factors: Array, axes: ContractionAxes) -> Array:
    if axes.weight_blocks == 1:
        shape = [1] * weight.ndim
        shape[axes.weight_output] = -1
        return np.asarray(weight / factors.reshape(shape))
    rows = np.repeat(factors.reshape(axes.groups, -1), weight.shape[0] // axes.groups, axis=0)
    return np.asarray(weight / rows.reshape(*rows.shape, *([1] * (weight.ndim - 2))))


def _operand(call: relax.Call) -> Array:
    """The constant operand 1 of a call."""
    known = constant_value(call.args[1])
    assert known is not None, "_pairs() checked it"
    return known.astype("float64")


def _range_by_input(weight: Array, call: relax.Call) -> Array:
    """Largest absolute weight of each input channel."""
    axes = contraction_axes(call)
    by_output = np.abs(weight_by_output(weight, axes)).max(axis=2)
    per_group = by_output.reshape(axes.groups, -1, by_output.shape[1]).max(axis=1)
    return np.asarray(per_group.reshape(-1))


@mutator
class _Writer(PyExprMutator):
    def __init__(self, mod: IRModule, constants: dict[relax.Var, Array]):
        super().__init__(mod)
        self.constants = constants

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if binding.var in self.constants:
            call = binding.value
            operand = constant(self.constants[binding.var].astype("float32"))
            args = [call.args[0], operand, *call.args[2:]]
            call = relax.Call(call.op, args, call.attrs, call.ty_args)
            binding = relax.VarBinding(binding.var, call)
        super().visit_var_binding_(binding)
