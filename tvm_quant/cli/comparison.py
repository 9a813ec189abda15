"""Float against quantized, for commands: the float network of an artifact, data, and its layers."""

from __future__ import annotations

from pathlib import Path

import tvm
from tvm import IRModule

from tvm_quant.artifact import Artifact
from tvm_quant.cli import options
from tvm_quant.cli.guard import stderr
from tvm_quant.cli.provenance import float_model, preprocess_of
from tvm_quant.dataset import CheckedDataset
from tvm_quant.errors import ArtifactError
from tvm_quant.ir import io_signature
from tvm_quant.report import LayerSqnr, layer_sqnr
from tvm_quant.transform import Prepare


def open_comparison(
    artifact: Artifact, data: str, model: Path | None, preprocess: Path | None, limit: int | None
) -> tuple[IRModule, CheckedDataset]:
    """The prepared float network of an artifact, and the data to compare on.

    Raises:
        ArtifactError: the float model is gone or has changed.
        DatasetError: the data does not fit it.
    """
    mod, params = float_model(artifact, model)
    reference = tvm.transform.Sequential([Prepare(params)])(mod)
    dataset = options.open_data(
        data, io_signature(reference), preprocess=preprocess_of(artifact, preprocess), limit=limit
    )
    return reference, dataset


def check_layers(path: Path, artifact: Artifact) -> None:
    """Find out before long work that layers cannot be compared.

    Raises:
        ArtifactError: the artifact has no calibrated module.
    """
    if artifact.calibrated is None:
        raise ArtifactError(
            f"{path} was written with --slim and cannot show layers; quantize again without it"
        )


def compare_layers(
    artifact: Artifact, reference: IRModule, dataset: CheckedDataset, samples: int, target: str
) -> list[LayerSqnr]:
    """Noise of each layer on the first samples; `check_layers` comes before."""
    assert artifact.calibrated is not None
    few = dataset.fitted(dataset.signature, min(samples, dataset.samples))
    with stderr().status(f"comparing layers on {few.samples} samples"):
        return layer_sqnr(reference, artifact.calibrated, few, target=target)
