"""Where an artifact came from: enough to make it again, or to see that the model changed."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from tvm_quant.errors import ArtifactError

PACKAGES = ("apache-tvm", "apache-tvm-ffi", "numpy")


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """What made an artifact.

    Attributes:
        created: time in UTC, ISO 8601.
        versions: {package: version}, and the version of Python.
        command: what was run.
        source: path of the float model, absolute; None if it came from memory.
        source_sha256: of that file.
        dataset: the calibration data in words.
        preprocess: fields of the preprocessing spec that was used; None without one.
    """

    created: str
    versions: Mapping[str, str] = field(default_factory=dict)
    command: Sequence[str] = ()
    source: str | None = None
    source_sha256: str | None = None
    dataset: str | None = None
    preprocess: Mapping[str, Any] | None = None

    @classmethod
    def now(
        cls,
        *,
        source: str | Path | None = None,
        command: Sequence[str] = (),
        dataset: str | None = None,
        preprocess: Mapping[str, Any] | None = None,
    ) -> Provenance:
        """With the present time, versions and checksum of the file."""
        return cls(
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            versions=installed_versions(),
            command=list(command),
            source=str(Path(source).absolute()) if source is not None else None,
            source_sha256=sha256_of(source) if source is not None else None,
            dataset=dataset,
            preprocess=preprocess,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Provenance:
        """Inverse of `to_dict`.

        Raises:
            ArtifactError: fields that this version does not know.
        """
        try:
            return cls(**values)
        except TypeError as error:
            raise ArtifactError(f"the provenance cannot be read: {error}") from None


def installed_versions() -> dict[str, str]:
    """{package: version} of what the result depends on."""
    import tvm_quant

    own = {"tvm-quant": tvm_quant.__version__, "python": platform.python_version()}
    return own | {name: _version(name) for name in PACKAGES}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def sha256_of(path: str | Path) -> str:
    """Hexadecimal digest of a file.

    Raises:
        ArtifactError: the file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with Path(path).open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror}") from error
    return digest.hexdigest()
