"""Schedule rules: each turns the PrimFuncs whose structure it knows into fast loops.

A rule is a function `(PrimFunc, Isa) -> Schedule | None`; None means that the structure is another.
The first rule of `RULES` that answers wins. A new rule is one file and one row.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import IRModule, s_tir, tirx

from tvm_quant.backend.cpu.isa import Isa
from tvm_quant.backend.cpu.schedule.contraction import schedule_contraction
from tvm_quant.backend.cpu.schedule.fallback import schedule_fallback
from tvm_quant.backend.cpu.schedule.window import schedule_window
from tvm_quant.backend.cpu.schedule.winograd import schedule_winograd

Rule = Callable[[tirx.PrimFunc, Isa], s_tir.Schedule | None]

RULES: tuple[Rule, ...] = (
    schedule_winograd,
    schedule_contraction,
    schedule_window,
    schedule_fallback,
)

SCHEDULED = "tirx.is_scheduled"


@tvm.transform.module_pass(opt_level=0, name="ApplySchedules")
class ApplySchedules:
    """Schedule every PrimFunc of a module by the first rule that knows it."""

    def __init__(self, isa: Isa, rules: tuple[Rule, ...] = RULES):
        self.isa = isa
        self.rules = rules

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """Schedule the functions that are not scheduled yet."""
        mod = mod.clone()
        for gvar, func in mod.functions_items():
            if not isinstance(func, tirx.PrimFunc) or SCHEDULED in func.attrs:
                continue
            schedule = self._first(func)
            if schedule is not None:
                mod.update_func(gvar, schedule.mod["main"].with_attr(SCHEDULED, True))
        return mod

    def _first(self, func: tirx.PrimFunc) -> s_tir.Schedule | None:
        for rule in self.rules:
            schedule = rule(func, self.isa)
            if schedule is not None:
                return schedule
        return None
