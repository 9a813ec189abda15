"""`tvm-quant run`: the quantized network on data, outputs into a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

from tvm_quant.artifact import Artifact, atomic_write
from tvm_quant.backend import Runner
from tvm_quant.cli import options
from tvm_quant.cli.guard import stderr, stdout
from tvm_quant.cli.provenance import preprocess_of
from tvm_quant.ir import io_signature


def run_artifact(
    artifact: options.Artifact,
    data: options.Data,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File for the outputs (.npz, arrays output0, output1, ...)."
        ),
    ] = None,
    preprocess: options.PreprocessFile = None,
    limit: options.Limit = None,
    target: options.Target = "llvm",
) -> None:
    """Run a quantized network on data.

    Without [bold]-o[/] it prints the highest scores of each sample.

    [bold]Example:[/]  tvm-quant run model.tvmq --data photos/ -o scores.npz
    """
    loaded = Artifact.load(artifact)
    dataset = options.open_data(
        data,
        io_signature(loaded.module),
        preprocess=preprocess_of(loaded, preprocess),
        limit=limit,
    )
    with stderr().status(f"compiling for {target}"):
        runner = Runner(loaded.module, target)
    outputs: list[list[npt.NDArray[Any]]] = []
    first = 0
    for batch in dataset.with_labels():
        results = [np.asarray(result) for result in runner.run(batch.inputs)]
        results = [result[: batch.valid] if result.ndim else result for result in results]
        if output is None:
            _print_scores(results[0], first)
            first += batch.valid
        else:
            outputs.append(results)
    if output is not None:
        _write(output, outputs)
        stdout().print(f"wrote {output} ({dataset.samples} samples)")


def _write(path: Path, outputs: list[list[npt.NDArray[Any]]]) -> None:
    stacked = {
        f"output{index}": np.concatenate([np.atleast_1d(one) for one in parts])
        for index, parts in enumerate(zip(*outputs, strict=True))
    }
    with atomic_write(path) as stream:
        np.savez(stream, **stacked)  # type: ignore[arg-type]


def _print_scores(scores: npt.NDArray[Any], first: int) -> None:
    for index, row in enumerate(scores.reshape(max(len(scores), 1), -1)):
        best = np.argsort(-row, kind="stable")[:5]
        text = "  ".join(f"{place}: {row[place]:.4g}" for place in best)
        stdout().print(f"sample {first + index}   {text}")
