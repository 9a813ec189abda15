"""When the stages of a VTA are busy, for `plot_timeline`."""

from __future__ import annotations

from tvm_quant.backend.vta.cycles import CycleModel, timeline
from tvm_quant.backend.vta.isa import Transfer
from tvm_quant.backend.vta.program import Program
from tvm_quant.backend.vta.trace import kind_of
from tvm_quant.report.plot import Span


def spans_of(program: Program, model: CycleModel | None = None) -> list[Span]:
    """One span an instruction, by stage; those that only pass on tokens are left out."""
    times = timeline(program, model)
    return [
        Span(row=one.stage.name.lower(), kind=kind_of(one), start=begin, end=end)
        for one, (begin, end) in zip(program.instructions, times, strict=True)
        if not (isinstance(one, Transfer) and one.is_nop)
    ]
