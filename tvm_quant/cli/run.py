"""`tvm-quant run`: the quantized network on data, outputs into a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

from tvm_quant.artifact import Artifact
from tvm_quant.atomic import atomic_write
from tvm_quant.backend import Runner
from tvm_quant.cli import options
from tvm_quant.cli.guard import stderr, stdout
from tvm_quant.cli.provenance import preprocess_of
from tvm_quant.ir import io_signature
from tvm_quant.report.evaluate import valid_rows


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

    Without [bold]-o[/] it prints the highest scores of each sample. Outputs whose size differs from
    batch to batch are written as output0_0, output0_1, ...

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
        results = [valid_rows(np.asarray(result), batch) for result in runner.run(batch.inputs)]
        if output is None:
            _print_scores(results[0], first)
            first += batch.valid
        else:
            outputs.append(results)
    if output is not None:
        _write(output, outputs)
        stdout().print(f"wrote {output} ({dataset.samples} samples)")


def _write(path: Path, outputs: list[list[npt.NDArray[Any]]]) -> None:
    arrays: dict[str, npt.NDArray[Any]] = {}
    for index, parts in enumerate(zip(*outputs, strict=True)):
        rows = [np.atleast_1d(part) for part in parts]
        if len({row.shape[1:] for row in rows}) == 1:
            arrays[f"output{index}"] = np.concatenate(rows)
        else:
            arrays |= {f"output{index}_{batch}": row for batch, row in enumerate(rows)}
    with atomic_write(path) as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]


def _print_scores(scores: npt.NDArray[Any], first: int) -> None:
    for index, row in enumerate(scores.reshape(max(len(scores), 1), -1)):
        best = np.argsort(-row, kind="stable")[:5]
        text = "  ".join(f"{place}: {row[place]:.4g}" for place in best)
        stdout().print(f"sample {first + index}   {text}")
