"""When the stages of a VTA are busy, for `plot_timeline`."""

from __future__ import annotations

from tvm_quant.backend.vta.codegen import Run, kind_of
from tvm_quant.report.plot import Span

NOTHING = "NOP"


def spans_of(run: Run) -> list[Span]:
    """One span an instruction, by stage; those that only pass on tokens are left out."""
    return [
        Span(
            row=event.instruction.stage.name.lower(),
            kind=kind_of(event.instruction),
            start=event.start,
            end=event.end,
        )
        for event in run.events
        if kind_of(event.instruction) != NOTHING
    ]
