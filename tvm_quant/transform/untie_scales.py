"""UntieScales: free tensors of a scale that a concat imposes on them.

Before    q = simulated_quantize(x, s, z)                  s covers all operands of the concat
          a = R.nn.conv2d(q, ...)
          c = R.concat([R.nn.max_pool2d(q), other_q])
After     q = simulated_quantize(x, s', z')                s' covers x alone
          a = R.nn.conv2d(q, ...)
          p = simulated_quantize(x, s, z)
          c = R.concat([R.nn.max_pool2d(p), other_q])

One quantizer for all readers costs nothing while the operands of the concat are alike. Where their
ranges differ by more than a bit, its other readers would lose that bit, and two concats of one
tensor would spread it to each other's operands. Then the operands of each concat get quantizers of
their own, which MatchScales can scale channel by channel.

Only for groups that concats make: where the hardware ties the operands of other operators, they
stay tied, and so do concats of concats. Needs CalibrateActivations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy.typing as npt
import tvm
from tvm import IRModule, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_quant.config import QuantizeConfig
from tvm_quant.estimator import power_of_two_grid, scale_zero_point
from tvm_quant.hardware import hardware_row
from tvm_quant.ir import bindings, consumers, op_name, with_names_of
from tvm_quant.ir.bindings import flat_operands
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
from tvm_quant.statistics import Statistics
from tvm_quant.transform.calibrate_weights import power_of_two_scales
from tvm_quant.transform.range_records import range_records

Array = npt.NDArray[Any]
End = tuple[relax.Var | None, int]  # a call that reads codes, and the port

UNLIKE = 2.0  # ratio of scales: one bit


@tvm.transform.module_pass(opt_level=0, name="UntieScales")
class UntieScales:
    """Give the operands of a concat quantizers of their own where one scale costs others a bit.

    Args:
        config: `match_channel_scales` switches the pass off.
        statistics: of the operands, which tell apart scales that have to be powers of two.
    """

    def __init__(self, config: QuantizeConfig | None = None, statistics: Statistics | None = None):
        self.config = config or QuantizeConfig()
        self.statistics = statistics

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """Run the pass."""
        if not self.config.match_channel_scales:
            return mod
        finder = _Finder(main_function(mod), self.config, self.statistics)
        untied = finder.untied()
        return _apply(mod, finder, untied) if untied.quantizers else mod


@dataclass(frozen=True)
class _Untied:
    """What changes.

    Attributes:
        quantizers: new call of each quantizer that had the scale of a group.
        operands: by operand of a concat, the quantizer that it gets a copy of, and the copy's
            group.
    """

    quantizers: dict[relax.Var, relax.Call] = field(default_factory=dict)
    operands: dict[End, tuple[relax.Var, int]] = field(default_factory=dict)


class _Finder:
    def __init__(self, func: relax.Function, config: QuantizeConfig, statistics: Statistics | None):
        self.statistics = statistics
        self.values: dict[relax.Var, Any] = {b.var: b.value for b in bindings(func)}
        self.uses = consumers(func)
        self.records = range_records(func)
        self.powers = power_of_two_scales(config)
        self.tying = hardware_row(config.hardware).unified

    def untied(self) -> _Untied:
        """The changes to all groups that need them."""
        found = _Untied()
        numbers = count(1 + max(self._groups(), default=NO_GROUP))
        for members in self._groups().values():
            ends = {var: list(self._ends(var)) for var in members}
            if self._separable(ends) and any(map(self._loses_a_bit, members)):
                self._untie(ends, found, defaultdict(lambda: next(numbers)))
        return found

    def _groups(self) -> dict[int, list[relax.Var]]:
        groups: dict[int, list[relax.Var]] = {}
        for var, value in self.values.items():
            if is_simulated(value) and is_calibrated(value) and group_of(value) != NO_GROUP:
                groups.setdefault(group_of(value), []).append(var)
        return groups

    def _untie(
        self,
        ends: dict[relax.Var, list[End]],
        found: _Untied,
        group_of_join: defaultdict[relax.Var | None, int],
    ) -> None:
        for var, readers in ends.items():
            joins = [end for end in readers if self._role(end) is Role.JOIN]
            if len(readers) == len(joins) == 1 and not self._is_input(var):
                found.quantizers[var] = self.copy(var, group_of_join[joins[0][0]])
            else:
                found.quantizers[var] = self._alone(var)
                found.operands.update({end: (var, group_of_join[end[0]]) for end in joins})

    def _ends(self, var: relax.Var) -> Iterator[End]:
        """Uses of the codes of `var`, behind what moves them."""
        for end in self.uses[var]:
            if end[0] is not None and self._role(end) is Role.MOVE:
                yield from self._ends(end[0])
            else:
                yield end

    def _role(self, end: End) -> Role | None:
        return role_of(self.values.get(end[0]))

    def _is_input(self, var: relax.Var) -> bool:
        return kind_of(self.values[var]) is Kind.INPUT

    def _separable(self, ends: dict[relax.Var, list[End]]) -> bool:
        """Whether concats alone tie the group, none behind another, and some member gains."""
        every = [end for found in ends.values() for end in found]
        joins = {end[0] for end in every if self._role(end) is Role.JOIN and end[0] is not None}
        if not joins or any(self._ties(end) for end in every if end[0] not in joins):
            return False
        if any(self._role(end) is Role.JOIN for join in joins for end in self._ends(join)):
            return False
        return any(len(found) > 1 or self._is_input(var) for var, found in ends.items())

    def _ties(self, end: End) -> bool:
        return op_name(self.values.get(end[0])) in self.tying

    def _loses_a_bit(self, var: relax.Var) -> bool:
        scale, _ = scale_of(self.values[var])
        return bool(scale.item() > UNLIKE * self._own_scale(var)[0].item())

    def _own_scale(self, var: relax.Var) -> tuple[Array, Array]:
        record = self.records[str(var.name)]
        spec = spec_of(self.values[var])
        if not self.powers:
            return scale_zero_point(record.low, record.high, spec)
        known = self.statistics.get(str(self.values[var].args[0].name)) if self.statistics else None
        return power_of_two_grid(record.low, record.high, spec, [known] if known else [])

    def _alone(self, var: relax.Var) -> relax.Call:
        """The quantizer with a scale of its own."""
        call = self.values[var]
        return simulated_quantize(
            call.args[0], *self._own_scale(var), spec=spec_of(call), kind=kind_of(call)
        )

    def copy(self, var: relax.Var, group: int) -> relax.Call:
        """The quantizer with the scale it has, in another group."""
        call = self.values[var]
        return simulated_quantize(
            call.args[0], *scale_of(call), spec=spec_of(call), kind=Kind.ACTIVATION, group=group
        )


@mutator
class _Untier(PyExprMutator):
    """Replaces quantizers, and gives operands of concats copies behind what moved their codes."""

    def __init__(self, mod: IRModule, finder: _Finder, untied: _Untied):
        super().__init__(mod)
        self.finder = finder
        self.untied = untied
        self.made: dict[str, str] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value = self.untied.quantizers.get(binding.var, binding.value)
        if role_of(value) is Role.JOIN:
            fields = [
                self._operand(field, (binding.var, port))
                for port, field in enumerate(flat_operands(value))
            ]
            value = relax.Call(value.op, [relax.Tuple(fields)], value.attrs, value.ty_args)
        super().visit_var_binding_(relax.VarBinding(binding.var, value))

    def _operand(self, operand: relax.Expr, end: End) -> relax.Expr:
        if end not in self.untied.operands:
            return operand
        return self._copied(operand, *self.untied.operands[end])

    def _copied(self, var: relax.Var, quantizer: relax.Var, group: int) -> relax.Var:
        """`var`, which holds codes of `quantizer`, computed again from a copy of it."""
        if var.same_as(quantizer):
            value = self.finder.copy(quantizer, group)
        else:
            value = self.finder.values[var]
            moved = self._copied(value.args[0], quantizer, group)
            value = relax.Call(value.op, [moved, *value.args[1:]], value.attrs, value.ty_args)
        made = self.builder_.emit(self.visit_expr(value), name_hint=f"{var.name}_untied")
        self.made[str(made.name)] = str(var.name)
        return made


def _apply(mod: IRModule, finder: _Finder, untied: _Untied) -> IRModule:
    untier = _Untier(mod, finder, untied)
    gvar = mod.get_global_var("main")
    func = untier.visit_expr(mod[gvar])
    untier.builder_.update_func(gvar, with_names_of(func, untier.made))
    cleaned: IRModule = relax.transform.DeadCodeElimination(["main"])(untier.builder_.get())
    return cleaned
