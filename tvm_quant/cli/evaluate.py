"""`tvm-quant evaluate`: the quantized network against the float one."""

from __future__ import annotations

import json as json_module
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tvm_quant.artifact import Artifact
from tvm_quant.atomic import atomic_write
from tvm_quant.cli import options
from tvm_quant.cli.comparison import check_layers, compare_layers, open_comparison
from tvm_quant.cli.guard import stderr, stdout
from tvm_quant.report import Evaluation, LayerSqnr, evaluate, plot_layers
from tvm_quant.report.inspect import short_op


def evaluate_artifact(
    artifact: options.Artifact,
    data: options.Data,
    model: options.FloatModel = None,
    preprocess: options.PreprocessFile = None,
    limit: options.Limit = None,
    layers: Annotated[
        int, typer.Option(min=0, help="Samples for the table of layers; 0 leaves it out.")
    ] = 0,
    json: Annotated[Path | None, typer.Option(help="Write all numbers to this file.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the table of layers into this file (.png).")
    ] = None,
    target: options.Target = "llvm",
) -> None:
    """Compare a quantized network with its float original.

    Shows top-1 accuracies (where the data have labels), how often both agree, the signal to
    quantization noise ratio (SQNR) of each output, and of each layer with [bold]--layers[/].

    [bold]Example:[/]  tvm-quant evaluate model.tvmq --data val/ --layers 16 --plot layers.png
    """
    loaded = Artifact.load(artifact)
    layers = layers or (16 if plot is not None else 0)
    if layers:
        check_layers(artifact, loaded)
    reference, dataset = open_comparison(loaded, data, model, preprocess, limit)
    with stderr().status(f"running both networks on {dataset.samples} samples"):
        result = evaluate(reference, loaded.module, dataset, target=target)
    if layers:
        compared = compare_layers(loaded, reference, dataset, layers, target)
        result = replace(result, layers=compared)
    _print(result)
    if json is not None:
        with atomic_write(json) as stream:
            stream.write((json_module.dumps(result.to_dict(), indent=1) + "\n").encode())
    if plot is not None:
        plot_layers(plot, result.layers, title=artifact.name)


def _print(result: Evaluation) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("", "float", "int8"):
        table.add_column(column, justify="right" if column else "left")
    if result.top1_float is not None and result.top1_int8 is not None:
        table.add_row("top-1", f"{result.top1_float:.2%}", f"{result.top1_int8:.2%}")
    if result.agreement is not None:
        table.add_row("same answer", "", f"{result.agreement:.2%}")
    for index, sqnr in enumerate(result.output_sqnr_db):
        table.add_row(f"SQNR of output {index}", "", f"{sqnr:.1f} dB")
    table.add_row("samples", "", str(result.samples))
    stdout().print(table)
    if result.layers:
        stdout().print()
        stdout().print(_layer_table(result.layers))


def _layer_table(layers: Sequence[LayerSqnr]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("layer", overflow="fold")
    table.add_column("op")
    table.add_column("SQNR", justify="right")
    for layer in layers:
        table.add_row(layer.node, short_op(layer.op), f"{layer.sqnr_db:.1f} dB")
    return table
