"""`tvm-quant inspect`: what is in a `.tvmq` file."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from tvm_quant.artifact import Artifact
from tvm_quant.cli import options
from tvm_quant.cli.guard import stdout
from tvm_quant.report import float_table, quantizer_table, select, to_json


def inspect_artifact(
    artifact: options.Artifact,
    node: Annotated[
        list[str] | None,
        typer.Option("--node", help="Only nodes or operators that match this pattern; repeatable."),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the table as JSON, with all scales.")
    ] = False,
) -> None:
    """Show the quantizers of a network, and why an operator stayed in float.

    [bold]Example:[/]  tvm-quant inspect model.tvmq --node "layer1.*"
    """
    loaded = Artifact.load(artifact)
    rows = select(loaded.table, node or [])
    console = stdout()
    if json:
        typer.echo(to_json(rows))
        return
    _print_origin(console, loaded)
    if any(row.port is not None for row in rows):
        console.print("\n[bold]Quantizers[/]")
        console.print(quantizer_table(rows))
    if any(row.reason for row in rows):
        console.print("\n[bold]In float[/]")
        console.print(float_table(rows))


def _print_origin(console: Console, artifact: Artifact) -> None:
    made = artifact.provenance
    versions = ", ".join(f"{name} {version}" for name, version in made.versions.items())
    facts = {
        "model": made.source,
        "sha256": made.source_sha256,
        "calibrated on": made.dataset,
        "hardware": artifact.config.hardware,
        "activations": artifact.config.activation_estimator,
        "weights": artifact.config.weight_estimator or "by bits",
        "created": made.created,
        "versions": versions,
    }
    for name, fact in facts.items():
        console.print(f"[bold]{name:14s}[/]{fact if fact is not None else '-'}", soft_wrap=True)
