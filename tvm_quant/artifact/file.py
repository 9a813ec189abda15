"""The `.tvmq` file: a zip archive with everything that belongs to a quantized network.

    format.json         {"format": "tvm_quant artifact", "version": 2}
    module.json         the integer module, as `tvm.ir.save_json` writes it, but for
    packed.bin          its weights of fewer than 8 bits, without padding (see pack.py)
    calibrated.json     optional: the float module with calibrated quantizers
    config.yaml         the `QuantizeConfig`
    calibration.json    rows of the calibration table
    network.json        calls, edges and places of quantizers; files of older versions lack it
    provenance.json     what made it, from what

Equal content gives equal bytes: members have a fixed order and no time. Only provenance.json names
one.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm
import yaml
from tvm import IRModule

from tvm_quant.artifact.network import Network, network_of
from tvm_quant.artifact.pack import pack_tensors, unpack_tensors
from tvm_quant.artifact.provenance import Provenance
from tvm_quant.artifact.table import QuantizerRow
from tvm_quant.atomic import atomic_write
from tvm_quant.config import QuantizeConfig
from tvm_quant.errors import ArtifactError

FORMAT = "tvm_quant artifact"
VERSION = 2
SUFFIX = ".tvmq"
EPOCH = (1980, 1, 1, 0, 0, 0)
"""Time stamp of every member: the earliest that zip knows."""


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A quantized network and what is known about it.

    Attributes:
        module: integers; `tvm_quant.compile` and `tvm.compile` take it.
        config: how it was quantized.
        table: quantizers, and reasons for what stayed in float.
        provenance: what made it.
        calibrated: the module just before integers, for reports layer by layer; None if left out.
        network: what can be drawn without weights; None in files of older versions.
    """

    module: IRModule
    config: QuantizeConfig
    table: Sequence[QuantizerRow] = field(default_factory=tuple)
    provenance: Provenance
    calibrated: IRModule | None = None
    network: Network | None = None

    def drawable(self) -> Network:
        """The network, in a file of an older version read off its calibrated module.

        Raises:
            ArtifactError: the file has neither.
        """
        if self.network is not None:
            return self.network
        if self.calibrated is not None:
            return network_of(self.calibrated)
        raise ArtifactError(
            "the file holds scales, but not which call reads which: it was written with --slim by "
            "an older tvm_quant. Quantize again"
        )

    def save(self, path: str | Path) -> None:
        """Write the file, replacing an older one at once or not at all.

        Raises:
            ArtifactError: it cannot be written there.
        """
        module, packed = pack_tensors(tvm.ir.save_json(self.module))
        members: dict[str, str | bytes] = {
            "format.json": _json({"format": FORMAT, "version": VERSION}),
            "module.json": module,
            "packed.bin": packed,
            "config.yaml": self.config.dump(),
            "calibration.json": _json([row.to_dict() for row in self.table]),
            "provenance.json": _json(self.provenance.to_dict()),
        }
        if self.network is not None:
            members["network.json"] = _json(self.network.to_dict())
        if self.calibrated is not None:
            members["calibrated.json"] = tvm.ir.save_json(self.calibrated)
        with (
            atomic_write(path) as stream,
            zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive,
        ):
            for name, content in members.items():
                info = zipfile.ZipInfo(name, EPOCH)
                info.compress_type = zipfile.ZIP_DEFLATED
                info.external_attr = 0o644 << 16
                archive.writestr(info, content)

    @classmethod
    def load(cls, path: str | Path) -> Artifact:
        """Read a file that `save` wrote.

        Raises:
            ArtifactError: the file is missing, damaged, something else, or from a newer version.
        """
        members = _members(Path(path))
        try:
            return cls(
                module=tvm.ir.load_json(_module_text(members)),
                config=QuantizeConfig.from_dict(yaml.safe_load(members["config.yaml"].decode())),
                table=[
                    QuantizerRow.from_dict(row) for row in json.loads(members["calibration.json"])
                ],
                provenance=Provenance.from_dict(json.loads(members["provenance.json"])),
                calibrated=_optional_module(members),
                network=_optional_network(members),
            )
        except KeyError as error:
            raise ArtifactError(f"{path} is damaged: it lacks {error}. Quantize again") from error
        except (ValueError, TypeError, RuntimeError, yaml.YAMLError) as error:
            raise ArtifactError(f"{path} is damaged: {error}. Quantize again") from error


def _module_text(members: Mapping[str, bytes]) -> str:
    packed = members.get("packed.bin", b"")  # version 1 had none
    return unpack_tensors(members["module.json"].decode(), packed)


def _optional_network(members: Mapping[str, bytes]) -> Network | None:
    text = members.get("network.json")
    return None if text is None else Network.from_dict(json.loads(text))


def _optional_module(members: Mapping[str, bytes]) -> IRModule | None:
    text = members.get("calibrated.json")
    return None if text is None else tvm.ir.load_json(text.decode())


def _members(path: Path) -> dict[str, bytes]:
    if not path.exists():
        raise ArtifactError(f"there is no file {path}")
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if "format.json" not in names:
                raise ArtifactError(_foreign(path))
            _check_format(path, archive.read("format.json"))
            return {name: archive.read(name) for name in names}
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ArtifactError(f"{_foreign(path)}, or it is damaged ({error})") from error
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror or error}") from error


def _check_format(path: Path, text: bytes) -> None:
    try:
        header: Any = json.loads(text)
    except ValueError:
        header = None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ArtifactError(_foreign(path))
    version = header.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise ArtifactError(
            f"{path} has format version {version}; this tvm_quant reads up to {VERSION}. Upgrade "
            "it (pip install -U tvm-quant), or quantize again"
        )


def _foreign(path: Path) -> str:
    return f"{path} is no {SUFFIX} file of tvm_quant"


def _json(value: Any) -> str:
    return json.dumps(value, indent=1) + "\n"
