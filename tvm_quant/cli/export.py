"""`tvm-quant export`: from a `.tvmq` file to an ONNX model with its quantizers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tvm_quant.artifact import Artifact
from tvm_quant.cli import options
from tvm_quant.cli.guard import stderr, stdout
from tvm_quant.errors import ArtifactError
from tvm_quant.export import FORMATS, export_qdq


def export_artifact(
    artifact: options.Artifact,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Model to write (.onnx).", show_default=False)
    ],
    format: Annotated[
        str | None,
        options.choice(FORMATS, "Nodes to write; without, qdq where grids have 8 or 16 bits."),
    ] = None,
) -> None:
    """Write a quantized network as ONNX, to run or check it in another tool.

    [bold]Example:[/]  tvm-quant export model.tvmq -o model.onnx
    """
    loaded = Artifact.load(artifact)
    if loaded.calibrated is None:
        raise ArtifactError(
            f"{artifact} was written with --slim, without the network that quantizers stand in. "
            "Quantize again without --slim"
        )
    with stderr().status(f"writing {output}"):
        model = export_qdq(loaded.calibrated, output, format=format)
    size = output.stat().st_size / 1000
    stdout().print(f"wrote {output} ({len(model.graph.node)} nodes, {size:.0f} kB)")
