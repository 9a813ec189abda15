"""MatchScales: let channels of unequal range share one activation grid.

Before    q = simulated_quantize(x, s, z)
          y = R.nn.conv2d(q, simulated_quantize(w, t, 0))
After     q = simulated_quantize(x * r, s', z')                 r per channel
          y = R.nn.conv2d(q, simulated_quantize(w / r, t', 0))

x is an accumulator, so Realize merges r into its requantize, and the products of every channel
still have one scale while they are accumulated. Or x is a float tensor, such as the result of a
layer norm, and r costs one multiplication in the kernel that quantizes it: what SmoothQuant does
for transformers (Xiao et al., arXiv:2211.10438), without its exponent to choose.

A sum or a mean that also reads q gets the factors undone (channel_readers.py), which costs nothing
on integers either. The operands of a concat, which have to share a grid, get a factor each in the
same way: a branch of range 1 beside one of range 100 keeps all its codes.

Where the factors come from: channel_scale.py. Only where the prediction says that it pays. The
range of the scaled tensor comes from the estimator again, which sees how the channels are spread.

Needs CalibrateWeights and CalibrateActivations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import IRModule, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_quant.config import QuantizeConfig
from tvm_quant.estimator import (
    grid_ends,
    power_of_two_grid,
    scale_zero_point,
)
from tvm_quant.hardware import hardware_row
from tvm_quant.ir import bindings, constant, consumers, op_name, with_names_of
from tvm_quant.ir.reasons import float_reasons
from tvm_quant.ir.signature import main_function
from tvm_quant.op import (
    NO_GROUP,
    Kind,
    Role,
    group_of,
    is_calibrated,
    is_simulated,
    kind_of,
    role_of,
    scale_of,
    simulated_quantize,
    spec_of,
)
from tvm_quant.statistics import ChannelSpread, Statistics, join_spreads, without_outliers
from tvm_quant.transform.calibrate_activations import layer_estimator
from tvm_quant.transform.calibrate_weights import CalibrateWeights
from tvm_quant.transform.channel_readers import CHANNELWISE, find_readers
from tvm_quant.transform.channel_scale import (
    Array,
    ChannelRange,
    best_factors,
    divide_inputs,
    scaled_spread,
)
from tvm_quant.transform.channel_vector import along
from tvm_quant.transform.code_sources import quantizers_of
from tvm_quant.transform.quantizers import quantizers
from tvm_quant.transform.weight_rounding import LayerInputs


@tvm.transform.module_pass(opt_level=0, name="MatchScales")
class MatchScales:
    """Scale activation channels where their ranges differ, and undo it in the next weights.

    Args:
        statistics: of the profiled tensors, with their channels.
        config: the estimator of the changed weights; `match_channel_scales` switches the pass off.
        inputs: learns the factors of what each layer reads.
    """

    def __init__(
        self,
        statistics: Statistics,
        config: QuantizeConfig | None = None,
        *,
        inputs: LayerInputs | None = None,
    ):
        self.statistics = statistics
        self.config = config or QuantizeConfig()
        self.inputs = inputs

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """Run the pass."""
        if not self.config.match_channel_scales:
            return mod
        row = hardware_row(self.config.hardware)
        powers = self.config.power_of_two_scales or row.power_of_two_scales
        finder = _Finder(main_function(mod), self.statistics, self.config, powers=powers)
        folds = list(finder.folds())
        if not folds:
            return mod
        if self.inputs is not None:
            for fold in folds:
                self.inputs.factors.update({str(var.name): fold.channels for var in fold.weights})
        return tvm.transform.Sequential([CalibrateWeights(self.config)])(_apply(mod, folds))


@dataclass(frozen=True, kw_only=True)
class _Fold:
    """Factors of the quantizers that make one tensor, and where they are undone.

    Attributes:
        channels: factors of the channels that the readers see, (C,).
        quantizers: factors of each quantizer, in the shape of its operand.
        weights: new weight of each weight quantizer.
        before: inverse factors of the operand at a port of a call.
        after: inverse factors of the result of a call.
        grid: scale and zero point of the scaled tensor.
    """

    channels: Array
    quantizers: dict[relax.Var, Array]
    weights: dict[relax.Var, Array]
    before: dict[tuple[relax.Var, int], Array]
    after: dict[relax.Var, Array]
    grid: tuple[Array, Array]


class _Finder:
    def __init__(
        self,
        func: relax.Function,
        statistics: Statistics,
        config: QuantizeConfig,
        *,
        powers: bool,
    ):
        self.values = {binding.var: binding.value for binding in bindings(func)}
        self.uses = consumers(func)
        self.statistics = statistics
        self.params = set(func.params)
        self.floats = float_reasons(func)
        self.estimators = {q.var: layer_estimator(config, q) for q in quantizers(func)}
        self.powers = powers

    def folds(self) -> Iterator[_Fold]:
        """The folds that pay."""
        for members in self._tensors():
            fold = self._fold(members)
            if fold is not None:
                yield fold

    def _tensors(self) -> Iterable[list[relax.Var]]:
        """Calibrated quantizers of activations: each alone, or with its unified group."""
        groups: dict[relax.Var | int, list[relax.Var]] = {}
        for var, value in self.values.items():
            if is_simulated(value) and kind_of(value) is Kind.ACTIVATION and is_calibrated(value):
                group = group_of(value)
                groups.setdefault(var if group == NO_GROUP else group, []).append(var)
        return groups.values()

    def _fold(self, members: list[relax.Var]) -> _Fold | None:
        """The fold of one quantizer, or of the quantizers of one concat."""
        found = self._tensor(members)
        if found is None:
            return None
        tensor, axis, ordered = found
        readers = find_readers(tensor, axis, self.values, self.uses)
        if readers is None or not readers.errors:
            return None
        channels = [self._channels(var, axis) for var in ordered]
        if any(known is None for known in channels):
            return None
        joined = _concatenate([known for known in channels if known is not None])
        spec = spec_of(self.values[ordered[0]])
        factors = best_factors(joined, readers.errors, spec.levels)
        if factors is None:
            return None
        if self.powers:
            factors = 2.0 ** np.round(np.log2(factors))
        spread = join_spreads([self._spread(var) for var in ordered])
        scaled = scaled_spread(spread, factors, joined, readers.errors)
        ends = self.estimators[ordered[0]].matched_range(scaled, spec)
        sizes = [len(known.low) for known in channels if known is not None]
        parts = np.split(factors, np.cumsum(sizes)[:-1])
        return _Fold(
            channels=factors,
            quantizers={
                var: along(part, axis, _rank(var)) for var, part in zip(ordered, parts, strict=True)
            },
            weights={
                var: divide_inputs(reader.weight, factors, reader.axes)
                for var, reader in readers.weights.items()
            },
            before={
                (user, port): along(1 / factors, axis, _rank(tensor))
                for user, port in readers.before
            },
            after={var: along(1 / factors, at, _rank(var)) for var, at in readers.after.items()},
            grid=(
                power_of_two_grid(*ends, spec, [scaled])
                if self.powers
                else scale_zero_point(*ends, spec)
            ),
        )

    def _tensor(self, members: list[relax.Var]) -> tuple[relax.Var, int, list[relax.Var]] | None:
        """(tensor that the readers see, its channel axis, quantizers in channel order)."""
        first = members[0]
        if not all(self._takes_factor(self.values[var].args[0]) for var in members):
            return None
        if group_of(self.values[first]) == NO_GROUP:
            axis = self._channel_axis(first)
            return None if axis is None else (first, axis, members)
        joins = {self._join_of(var) for var in members}
        (join,) = joins if len(joins) == 1 else (None,)
        if join is None or len(members) != len(self.values[join].args[0].fields):
            return None
        ordered = [self._codes_of(field) for field in self.values[join].args[0].fields]
        if set(ordered) != set(members):
            return None
        return join, int(self.values[join].attrs.axis) % _rank(join), ordered

    def _join_of(self, var: relax.Var) -> relax.Var | None:
        """The concat that alone reads a tensor of codes, behind what keeps channels apart."""
        while len(self.uses[var]) == 1:
            ((user, _port),) = self.uses[var]
            if user is None or role_of(self.values[user]) is Role.JOIN:
                return user
            if op_name(self.values[user]) not in CHANNELWISE:
                return None
            var = user
        return None

    def _codes_of(self, var: relax.Var) -> relax.Var:
        """The quantizer before what keeps channels apart."""
        while op_name(self.values[var]) in CHANNELWISE:
            var = self.values[var].args[0]
        return var

    def _takes_factor(self, expr: relax.Expr) -> bool:
        """Whether a factor before the quantizer costs nothing, or one multiplication in float."""
        in_float = expr in self.params or str(expr.name) in self.floats
        return in_float or self._is_linear(expr)

    def _is_linear(self, expr: relax.Expr) -> bool:
        """Whether the quantizer reads an accumulator, which takes a factor for nothing."""
        value: Any = self.values.get(expr)
        role = role_of(value)
        if role in (Role.CONTRACTION, Role.MEAN):
            return all(quantizers_of(operand, self.values) for operand in value.args)
        if role not in (Role.CLAMP, Role.SUM):
            return False
        tensors = [arg for arg in value.args if isinstance(arg, relax.Var)]
        if len(tensors) == 1:
            return self._is_linear(tensors[0])
        distinct = len(set(tensors)) == len(tensors)
        return distinct and all(
            is_simulated(self.values.get(t)) or self._is_linear(t) for t in tensors
        )

    def _channel_axis(self, var: relax.Var) -> int | None:
        """The channel axis of the tensor that `var` quantizes, as it was profiled."""
        stats = self.statistics.get(str(self.values[var].args[0].name))
        return None if stats is None or stats.channels is None else stats.channels.axis

    def _channels(self, var: relax.Var, axis: int) -> ChannelRange | None:
        """Ranges of the channels, cut to the calibrated range of the whole tensor."""
        call = self.values[var]
        source = str(call.args[0].name)
        stats = self.statistics.get(source)
        if stats is None or stats.channels is None or stats.channels.axis != axis:
            return None
        spec, (scale, zero_point) = spec_of(call), scale_of(call)
        if scale.size != 1:
            return None
        low, high = (float(end) for end in grid_ends(scale, zero_point, spec))
        channels = without_outliers(stats).channels or stats.channels
        return ChannelRange(
            low=np.clip(channels.minimum.astype("float64"), low, 0),
            high=np.clip(channels.maximum.astype("float64"), 0, high),
            second_moment=channels.squares / max(channels.count, 1),
            count=channels.count,
        )

    def _spread(self, var: relax.Var) -> ChannelSpread:
        channels = self.statistics[str(self.values[var].args[0].name)].channels
        assert channels is not None, "_channels() found them"
        return channels.spread


def _concatenate(parts: list[ChannelRange]) -> ChannelRange:
    return ChannelRange(
        low=np.concatenate([part.low for part in parts]),
        high=np.concatenate([part.high for part in parts]),
        second_moment=np.concatenate([part.second_moment for part in parts]),
        count=min(part.count for part in parts),
    )


def _rank(var: relax.Var) -> int:
    return int(var.ty.ndim)


def _apply(mod: IRModule, folds: list[_Fold]) -> IRModule:
    gvar = mod.get_global_var("main")
    folder = _Folder(mod, folds)
    func = folder.visit_expr(mod[gvar])
    folder.builder_.update_func(gvar, with_names_of(func, folder.made))
    return folder.builder_.get()


@mutator
class _Folder(PyExprMutator):
    def __init__(self, mod: IRModule, folds: list[_Fold]):
        super().__init__(mod)
        self.factors = {var: (f, fold) for fold in folds for var, f in fold.quantizers.items()}
        self.weights = {var: weight for fold in folds for var, weight in fold.weights.items()}
        self.after = {var: inverse for fold in folds for var, inverse in fold.after.items()}
        self.before: dict[relax.Var, dict[int, Array]] = {}
        self.made: dict[str, str] = {}
        for fold in folds:
            for (user, port), inverse in fold.before.items():
                self.before.setdefault(user, {})[port] = inverse

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if binding.var in self.factors:
            binding = relax.VarBinding(binding.var, self._scale(binding))
        elif binding.var in self.weights:
            binding = relax.VarBinding(binding.var, self._weight(binding))
        elif binding.var in self.before:
            binding = relax.VarBinding(binding.var, self._restore_before(binding))
        elif binding.var in self.after:
            binding = relax.VarBinding(binding.var, self._restore_after(binding))
        super().visit_var_binding_(binding)

    def _restore_before(self, binding: relax.VarBinding) -> relax.Call:
        call = binding.value
        args = list(call.args)
        for port, inverse in self.before[binding.var].items():
            args[port] = self._multiply(args[port], inverse, "restored")
        return relax.Call(call.op, args, call.attrs, call.ty_args)

    def _restore_after(self, binding: relax.VarBinding) -> relax.Call:
        result = self._emit(self.visit_expr(binding.value), binding.var, "matched")
        return relax.op.multiply(result, constant(self.after[binding.var].astype("float32")))

    def _multiply(self, operand: relax.Var, factors: Array, suffix: str) -> relax.Var:
        product = relax.op.multiply(self.visit_expr(operand), constant(factors.astype("float32")))
        return self._emit(product, operand, suffix)

    def _emit(self, value: relax.Expr, like: relax.Var, suffix: str) -> relax.Var:
        """A variable that the user knows by the name of `like`."""
        var = self.builder_.emit(value, name_hint=f"{like.name}_{suffix}")
        self.made[str(var.name)] = str(like.name)
        return var

    def _scale(self, binding: relax.VarBinding) -> relax.Call:
        factors, fold = self.factors[binding.var]
        call = binding.value
        spec = spec_of(call)
        source = call.args[0]
        matched = self._multiply(source, factors, "matched")
        return simulated_quantize(
            matched, *fold.grid, spec=spec, kind=kind_of(call), group=group_of(call)
        )

    def _weight(self, binding: relax.VarBinding) -> relax.Call:
        call = binding.value
        weight = constant(self.weights[binding.var])
        return simulated_quantize(weight, spec=spec_of(call), kind=kind_of(call))
