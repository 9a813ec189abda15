"""`tvm-quant inspect`: what is in a `.tvmq` file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tvm_quant.artifact import Artifact, placed_rows
from tvm_quant.cli import options
from tvm_quant.cli.comparison import check_layers, compare_layers, open_comparison
from tvm_quant.cli.guard import stdout
from tvm_quant.errors import ConfigError
from tvm_quant.report import (
    LayerSqnr,
    diagram_of,
    float_table,
    quantizer_table,
    quantizer_text,
    select,
    to_json,
    write_graph,
)

LAYER_SAMPLES = 16
"""Samples on which layers are compared, unless told otherwise."""

PAGES = (".html", ".htm")


def inspect_artifact(
    artifact: options.Artifact,
    node: Annotated[
        list[str] | None,
        typer.Option("--node", help="Only nodes or operators that match this pattern; repeatable."),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the table as JSON, with all scales.")
    ] = False,
    text: Annotated[
        bool,
        typer.Option("--text", help="Print one line a quantizer without numbers, for comparisons."),
    ] = False,
    scales: Annotated[
        bool, typer.Option("--scales", help="With --text: scales of three digits, too.")
    ] = False,
    graph: Annotated[
        Path | None, typer.Option(help="Draw the network into this file (.html).")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", "-d", help="With --graph: samples to measure the noise of layers."),
    ] = None,
    model: options.FloatModel = None,
    preprocess: options.PreprocessFile = None,
    limit: Annotated[
        int, typer.Option(min=1, help="With --data: samples to use at most.")
    ] = LAYER_SAMPLES,
) -> None:
    """Show the quantizers of a network, and why an operator stayed in float.

    With [bold]--graph[/] as a page for a browser: where each quantizer stands, its grid and scale,
    and with [bold]--data[/] the signal to quantization noise ratio (SQNR) of each layer.

    [bold]Examples:[/]

      tvm-quant inspect model.tvmq --node "layer1.*"

      tvm-quant inspect model.tvmq --graph model.html --data val/
    """
    _check_outputs({"--json": json, "--text": text, "--graph": graph is not None}, node)
    _check_options(graph, data, text, scales)
    loaded = Artifact.load(artifact)
    if graph is not None:
        layers = _layers(artifact, loaded, data, model, preprocess, limit) if data else []
        _draw(graph, artifact, loaded, layers)
        return
    if text:
        typer.echo(quantizer_text(loaded.drawable(), loaded.table if scales else ()), nl=False)
        return
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


def _check_outputs(given: Mapping[str, bool], node: list[str] | None) -> None:
    outputs = [option for option, wanted in given.items() if wanted]
    if len(outputs) > 1:
        raise ConfigError(f"{' and '.join(outputs)} are different outputs; give one of them")
    if node and outputs and outputs != ["--json"]:
        raise ConfigError(f"--node selects rows of the table; {outputs[0]} has the whole network")


def _check_options(graph: Path | None, data: str | None, text: bool, scales: bool) -> None:
    if data is not None and graph is None:
        raise ConfigError("--data measures layers for --graph; give --graph, or leave it out")
    if scales and not text:
        raise ConfigError("--scales adds to --text; give --text, or leave it out")
    if graph is not None and graph.suffix.lower() not in PAGES:
        raise ConfigError(f"--graph writes a web page; name it {graph.with_suffix('.html')}")


def _layers(
    path: Path,
    artifact: Artifact,
    data: str,
    model: Path | None,
    preprocess: Path | None,
    limit: int,
) -> list[LayerSqnr]:
    check_layers(path, artifact)
    reference, dataset = open_comparison(artifact, data, model, preprocess, limit)
    return compare_layers(artifact, reference, dataset, limit, "llvm")


def _draw(page: Path, path: Path, artifact: Artifact, layers: Sequence[LayerSqnr]) -> None:
    network = artifact.drawable()
    diagram = diagram_of(network, placed_rows(network, artifact.table), layers)
    write_graph(page, diagram, title=path.name, facts=_origin(artifact))
    stdout().print(f"wrote {page} ({page.stat().st_size / 1000:.0f} kB)", soft_wrap=True)


def _print_origin(console: Console, artifact: Artifact) -> None:
    for name, fact in _origin(artifact).items():
        console.print(f"[bold]{name:14s}[/]{fact}", soft_wrap=True)


def _origin(artifact: Artifact) -> dict[str, str]:
    made = artifact.provenance
    facts = {
        "model": made.source,
        "sha256": made.source_sha256,
        "calibrated on": made.dataset,
        "hardware": artifact.config.hardware,
        "activations": artifact.config.activation_estimator,
        "weights": artifact.config.weight_estimator or "by bits",
        "created": made.created,
        "versions": ", ".join(f"{name} {version}" for name, version in made.versions.items()),
    }
    return {name: fact if fact is not None else "-" for name, fact in facts.items()}
