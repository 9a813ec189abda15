"""`tvm-quant search`: bits for every layer, within a budget."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tvm_quant import frontend
from tvm_quant.atomic import atomic_write
from tvm_quant.cli import options
from tvm_quant.cli.guard import stderr, stdout
from tvm_quant.cli.workers import Workers, executor
from tvm_quant.errors import ArtifactError
from tvm_quant.ir import io_signature
from tvm_quant.lists import count, listed
from tvm_quant.report import METRICS
from tvm_quant.search import WEIGHT_BITS, Budget, Found, search_bits


def search_model(
    model: options.Model,
    data: options.Data,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="Config to write (.yaml), for quantize.", show_default=False
        ),
    ],
    weight_bytes: Annotated[
        float | None,
        typer.Option(help="What weights may take, as a share of their bytes with 8 bits."),
    ] = None,
    weight_bits: Annotated[
        float | None, typer.Option(help="What weights may take: bits in the mean.")
    ] = None,
    latency: Annotated[
        float | None,
        typer.Option(
            help="What a batch may take, as a share of the latency without a search; for choosing "
            "from --activations, and float."
        ),
    ] = None,
    allow_float: Annotated[
        bool, typer.Option("--allow-float", help="Let layers stay in float.")
    ] = False,
    choices: Annotated[
        str, typer.Option(help="Bits of weights to choose from, 2 to 8.")
    ] = ",".join(map(str, WEIGHT_BITS)),
    activations: Annotated[
        str, typer.Option(help="Bits of activations to choose from; without, those of the config.")
    ] = "",
    metric: Annotated[
        str | None,
        options.choice(METRICS, "What counts; without, the noise at the outputs."),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Samples to measure layers on.")] = 32,
    preprocess: options.PreprocessFile = None,
    config: options.ConfigFile = None,
    limit: options.Limit = None,
    skip: options.Skip = None,
    settings: options.Settings = None,
    shape: options.Shape = None,
    params: options.Params = None,
    workers: Workers = 1,
) -> None:
    """Choose the bits of the weights of every layer, so that accuracy loses least.

    Each layer is measured alone with each choice, then all are chosen at once. The result is a
    config that `quantize` takes.

    [bold]Example:[/]

      tvm-quant search net.onnx --data calib.npz --weight-bytes 0.6 -o bits.yaml

      tvm-quant quantize net.onnx --data calib.npz --config bits.yaml -o net.tvmq
    """
    if not output.parent.is_dir():
        raise ArtifactError(f"cannot write {output}: there is no folder {output.parent}")
    budget = Budget(weight_bytes=weight_bytes, weight_bits=weight_bits, latency=latency)
    chosen = options.read_config(config, {"max_samples": limit}, skip or [], settings or [])
    spec = options.read_preprocess(preprocess)
    with stderr().status(f"reading {model}"):
        mod, parameters = frontend.load(
            model, shapes=options.parse_shapes(shape or []), params=params
        )
    dataset = options.open_data(
        data,
        io_signature(mod),
        preprocess=spec,
        limit=chosen.max_samples,
        on_bad=chosen.on_bad,
        on_zero=chosen.on_zero,
    )
    with executor(workers) as pool:
        found = search_bits(
            mod,
            parameters,
            dataset,
            chosen,
            budget=budget,
            weight_bits=listed("--choices", choices, count),
            activation_bits=listed("--activations", activations, count) if activations else [],
            allow_float=allow_float,
            samples=samples,
            score=metric,
            executor=pool,
            progress=True,
        )
    with atomic_write(output) as stream:
        stream.write(found.config.dump().encode())
    _show(found, noise=metric is None)
    stdout().print(f"wrote {output}")


def _show(found: Found, *, noise: bool) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("layers", overflow="fold")
    table.add_column("bits")
    table.add_column("noise alone" if noise else "loss alone", justify="right")
    table.add_column("kB", justify="right")
    for row in found.rows:
        loss = _loss(row.loss, noise=noise)
        table.add_row(row.group.name, str(row.choice), loss, f"{row.size_bytes / 1000:.1f}")
    stdout().print(table)
    parts = [f"weights take {found.share:.1%} of their bytes with 8 bits"]
    parts.append(f"expected {_loss(found.predicted, noise=noise)}")
    if found.measured is not None:
        parts.append(f"measured {_loss(found.measured, noise=noise)}")
    stdout().print(", ".join(parts))


def _loss(value: float, *, noise: bool) -> str:
    if not noise:
        return f"{value:.4g}"
    return f"{10 * math.log10(value):.1f} dB" if value > 0 else "none"
