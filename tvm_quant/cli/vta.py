"""`tvm-quant vta COMMAND`: what a network becomes on a VTA."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import typer
from rich.table import Table

from tvm_quant.artifact import Artifact
from tvm_quant.backend.vta.layer import Layer, Region, Requantized, Weighted
from tvm_quant.backend.vta.partition import Part, partition
from tvm_quant.cli import options
from tvm_quant.cli.guard import guarded, stdout
from tvm_quant.ir import op_name
from tvm_quant.ir.signature import main_function

vta = typer.Typer(help="See what a network becomes on a VTA.", no_args_is_help=True)


def layers(artifact: options.Artifact) -> None:
    """List the layers that VTA computes, region by region, and what stays on the CPU.

    [bold]Example:[/]  tvm-quant vta layers model.tvmq
    """
    pieces = list(partition(main_function(Artifact.load(artifact).module)))
    parts = [piece for piece in pieces if isinstance(piece, Part)]
    for part in parts:
        stdout().print(_table(part))
    names = [op_name(piece.value) for piece in pieces if not isinstance(piece, Part)]
    rest = Counter(name for name in names if name)
    listed = ", ".join(f"{count} {name}" for name, count in sorted(rest.items()))
    stdout().print(f"on the CPU: {listed or 'nothing'}", soft_wrap=True)


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


COMMANDS: dict[str, Callable[..., None]] = {"layers": layers}
"""{command: function}, in the order of the help."""

for _name, _function in COMMANDS.items():
    vta.command(_name, no_args_is_help=True)(guarded(_function))


@vta.callback()
def _group() -> None:
    """See what a network becomes on a VTA."""
