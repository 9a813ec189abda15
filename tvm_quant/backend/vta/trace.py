"""What a program does: its instructions as text, a table of its layers, a picture of its stages."""

from __future__ import annotations

from pathlib import Path

from tvm_quant.atomic import atomic_write
from tvm_quant.backend.vta.cycles import CycleModel, layer_cycles, timeline
from tvm_quant.backend.vta.isa import Stage, disassemble
from tvm_quant.backend.vta.program import Program

_COLUMNS = ("layer", "instructions", "loaded", "stored", "GEMM steps", "cycles", "utilization")


def listing(program: Program) -> str:
    """One line for each instruction, under the names of the layers."""
    lines, layer = [], None
    for index, instruction in enumerate(program.instructions):
        if program.layer_of(index) != layer:
            layer = program.layer_of(index)
            lines.append(f"# {layer}" if layer else "# end")
        lines.append(f"{index:6d}  {instruction.stage.name:7s}  {disassemble(instruction)}")
    return "\n".join(lines) + "\n"


def table(program: Program, model: CycleModel | None = None) -> str:
    """Instructions, bytes, ideal cycles and utilization of each layer, as Markdown."""
    rows = [
        (
            found.layer,
            str(found.instructions),
            f"{found.load_bytes:,}",
            f"{found.store_bytes:,}",
            f"{found.gemm_steps:,}",
            f"{found.cycles:,}",
            f"{found.utilization:.2f}",
        )
        for found in layer_cycles(program, model)
    ]
    lines = [_COLUMNS, ("---", *("---:",) * (len(_COLUMNS) - 1)), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def draw(program: Program, path: str | Path, model: CycleModel | None = None) -> None:
    """Write a PNG: when each stage is at work, in cycles of the ideal model.

    Raises:
        ArtifactError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    times = timeline(program, model)
    figure = Figure(figsize=(14, 3), layout="constrained")
    axes = figure.add_subplot()
    for stage in Stage:
        bars = [
            (begin, end - begin)
            for instruction, (begin, end) in zip(program.instructions, times, strict=True)
            if instruction.stage is stage
        ]
        axes.broken_barh(bars, (-stage - 0.4, 0.8), facecolors=f"C{stage.value}")
    for span in program.spans:
        begin = min(begin for begin, _ in times[span.begin : span.end])
        axes.axvline(begin, color="0.7", linewidth=0.8)
        axes.text(begin, 0.5, span.layer, fontsize=7, rotation=30, va="bottom")
    axes.set_yticks([-stage for stage in Stage], [stage.name.lower() for stage in Stage])
    axes.set_xlabel("cycles (ideal bound)")
    with atomic_write(path) as stream:
        figure.savefig(stream, format="png", dpi=150)
