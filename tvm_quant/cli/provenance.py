"""Finding again what an artifact was made from: the float model and the preprocessing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tvm import IRModule

from tvm_quant import frontend
from tvm_quant.artifact import Artifact, sha256_of
from tvm_quant.dataset import Preprocess
from tvm_quant.errors import ArtifactError
from tvm_quant.ir import io_signature


def preprocess_of(artifact: Artifact, path: Path | None) -> Preprocess | None:
    """The spec in `path`, else the one that calibration used."""
    if path is not None:
        return Preprocess.from_yaml(path)
    stored = artifact.provenance.preprocess
    return Preprocess.from_dict(stored) if stored is not None else None


def float_model(artifact: Artifact, path: Path | None) -> tuple[IRModule, dict[str, Any]]:
    """The float network of an artifact, with the input shapes of the artifact.

    Args:
        artifact: holds path and checksum of the model it was made from.
        path: where the model is now; None if it has not moved.

    Raises:
        ArtifactError: the file is gone or has changed.
    """
    source = artifact.provenance.source
    if path is None and source is None:
        raise ArtifactError("the artifact does not say which model it was made from; give --model")
    place = path or Path(str(source))
    if not place.exists():
        raise ArtifactError(f"the float model {place} is not there; say where it is with --model")
    if path is None and sha256_of(place) != artifact.provenance.source_sha256:
        raise ArtifactError(
            f"the float model {place} has changed since it was quantized; quantize it again, or "
            "name the model to compare with by --model"
        )
    fixed = {
        info.name: [dim for dim in info.shape if dim is not None]
        for info in io_signature(artifact.module)
        if None not in info.shape
    }
    return frontend.load(place, shapes=fixed or None)
