"""`tvm-quant vta COMMAND`: what a network becomes on a VTA."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer
from rich.table import Table

from tvm_quant.artifact import Artifact
from tvm_quant.atomic import atomic_write
from tvm_quant.backend.vta import VtaConfig
from tvm_quant.backend.vta.codegen import (
    LayerTrace,
    Run,
    compile_region,
    disassembly,
    layer_traces,
    simulate,
)
from tvm_quant.backend.vta.codegen.isa import Stage
from tvm_quant.backend.vta.layer import Layer, Region, Requantized, Weighted
from tvm_quant.backend.vta.partition import Part, partition
from tvm_quant.cli import options
from tvm_quant.cli.guard import guarded, stdout
from tvm_quant.errors import BackendError
from tvm_quant.ir import op_name
from tvm_quant.ir.signature import main_function
from tvm_quant.report import plot_timeline, spans_of

vta = typer.Typer(help="See what a network becomes on a VTA.", no_args_is_help=True)


def layers(artifact: options.Artifact) -> None:
    """List the layers that VTA computes, region by region, and what stays on the CPU.

    [bold]Example:[/]  tvm-quant vta layers model.tvmq
    """
    pieces = list(partition(main_function(Artifact.load(artifact).module)))
    for part in pieces:
        if isinstance(part, Part):
            stdout().print(_table(part))
    names = [op_name(piece.value) for piece in pieces if not isinstance(piece, Part)]
    rest = Counter(name for name in names if name)
    listed = ", ".join(f"{count} {name}" for name, count in sorted(rest.items()))
    stdout().print(f"on the CPU: {listed or 'nothing'}", soft_wrap=True)


def trace(
    artifact: options.Artifact,
    region: Annotated[int, typer.Option(min=0, help="Which region, from 0.")] = 0,
    config: Annotated[
        Path | None, typer.Option(help="A vta_config.json; the default sizes without.")
    ] = None,
    extended: Annotated[
        bool, typer.Option("--extended", help="Use what only the functional simulator has.")
    ] = False,
    text: Annotated[
        Path | None, typer.Option("--disassembly", help="Write the instructions to this file.")
    ] = None,
    timeline: Annotated[
        Path | None, typer.Option(help="Draw what the stages do when, to this PNG or SVG file.")
    ] = None,
) -> None:
    """Simulate a region on random codes, and tell where its cycles go.

    [bold]Example:[/]  tvm-quant vta trace model.tvmq --timeline timeline.png
    """
    sizes = VtaConfig() if config is None else VtaConfig.read(config)
    chosen = _region(Artifact.load(artifact), region)
    program = compile_region(chosen, sizes, extended=extended)
    run = simulate(program, _random_inputs(chosen))
    rows = layer_traces(run.events)
    stdout().print(_trace_table(chosen, rows, run))
    if text is not None:
        with atomic_write(text) as stream:
            stream.write("".join(f"{line}\n" for line in disassembly(program)).encode())
        stdout().print(f"wrote {text} ({len(program.instructions)} instructions)")
    if timeline is not None:
        plot_timeline(timeline, spans_of(run), title=chosen.name)
        stdout().print(f"wrote {timeline}")


def _region(artifact: Artifact, number: int) -> Region:
    pieces = partition(main_function(artifact.module))
    regions = [piece.region for piece in pieces if isinstance(piece, Part)]
    if number >= len(regions):
        raise BackendError(
            f"There is no region {number} in this network, it has {len(regions)}; "
            "tvm-quant vta layers lists them."
        )
    return regions[number]


def _random_inputs(region: Region) -> list[npt.NDArray[np.int8]]:
    """Codes, whose values do not change the time."""
    rng = np.random.default_rng(0)
    shapes = [region.by_name[name].shape for name in region.inputs]
    return [rng.integers(-127, 128, shape).astype("int8") for shape in shapes]


def _trace_table(region: Region, rows: list[LayerTrace], run: Run) -> Table:
    used = run.gemm_steps / run.cycles
    title = f"{region.name}: {run.cycles / 1e6:.3f} M cycles of the model, GEMM busy {used:.0%}"
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    for column in ("layer", "instructions", "GEMM steps", "cycles", "GEMM", "load", "ALU", "store"):
        table.add_column(column, justify="left" if column == "layer" else "right")
    for row in rows:
        compute = row.busy[Stage.COMPUTE] - row.gemm_steps
        shares = [row.gemm_steps, row.busy[Stage.LOAD], compute, row.busy[Stage.STORE]]
        table.add_row(
            row.layer,
            str(row.instructions),
            str(row.gemm_steps),
            str(row.cycles),
            *(f"{share / max(row.cycles, 1):.0%}" for share in shares),
        )
    return table


def _table(part: Part) -> Table:
    title = f"{part.region.name}: {part.macs / 1e6:.1f} M multiply-adds"
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    for column in ("layer", "kind", "reads", "weight", "output", "shift"):
        table.add_column(column)
    for layer in part.region.layers:
        table.add_row(*_row(layer, part.region))
    return table


def _row(layer: Layer, region: Region) -> list[str]:
    return [
        layer.name,
        type(layer).__name__,
        ", ".join(layer.inputs),
        _extents(layer.weight.shape) if isinstance(layer, Weighted) else "",
        _extents(region.by_name[layer.output].shape),
        _between(layer.shift) if isinstance(layer, Requantized) else "",
    ]


def _extents(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _between(values: object) -> str:
    low, high = np.min(values), np.max(values)  # type: ignore[call-overload]
    return str(low) if low == high else f"{low} to {high}"


COMMANDS: dict[str, Callable[..., None]] = {"layers": layers, "trace": trace}
"""{command: function}, in the order of the help."""

for _name, _function in COMMANDS.items():
    vta.command(_name, no_args_is_help=True)(guarded(_function))


@vta.callback()
def _group() -> None:
    """See what a network becomes on a VTA."""
