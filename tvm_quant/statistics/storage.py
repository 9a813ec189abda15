"""The statistics file: a NumPy archive with a JSON header.

header     uint8: {"format", "version", "samples", "fingerprint", "tensors": [...]} as UTF-8
0/positive, 0/negative     int64: counts of tensor 0; where they start stands in the header
0/sample_min, ...          float32, (S,)
0/channel_lows, ...        (16, C), where there are channels
0/channel_spread           float64, (C, 2, B); its first bin stands in the header
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.errors import ArtifactError
from tvm_quant.statistics.channels import ChannelStatistics
from tvm_quant.statistics.histogram import FloatHistogram, Window
from tvm_quant.statistics.spread import ChannelSpread
from tvm_quant.statistics.tensor import TensorStatistics

Array = npt.NDArray[Any]

FORMAT = "tvm_quant statistics"
VERSION = 2

_SAMPLE_FIELDS = ("sample_min", "sample_max")
_CHANNEL_FIELDS = ("counts", "lows", "highs", "totals", "squares_by_group")


def save(
    path: str | Path, tensors: Mapping[str, TensorStatistics], *, samples: int, fingerprint: str
) -> None:
    """Write `tensors`, atomically. See `Statistics.save`."""
    arrays: dict[str, Array] = {}
    entries = [
        _pack(f"{i}/", name, stats, arrays) for i, (name, stats) in enumerate(tensors.items())
    ]
    header = {
        "format": FORMAT,
        "version": VERSION,
        "samples": samples,
        "fingerprint": fingerprint,
        "tensors": entries,
    }
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    _write_atomically(Path(path), arrays)


def load(path: str | Path) -> tuple[dict[str, TensorStatistics], int, str]:
    """(tensors, samples, fingerprint) of a file. See `Statistics.load`."""
    arrays = _read(path)
    header = _header(path, arrays)
    try:
        tensors = {
            str(entry["name"]): _unpack(f"{i}/", entry, arrays)
            for i, entry in enumerate(header["tensors"])
        }
        return tensors, int(header["samples"]), str(header["fingerprint"])
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"Statistics file '{path}' is damaged: {error!r}. Profile again to replace it."
        ) from error


def _pack(
    prefix: str, name: str, stats: TensorStatistics, arrays: dict[str, Array]
) -> dict[str, Any]:
    histogram, channels = stats.histogram, stats.channels
    arrays[f"{prefix}positive"] = histogram.positive.counts
    arrays[f"{prefix}negative"] = histogram.negative.counts
    for field in _SAMPLE_FIELDS:
        arrays[prefix + field] = getattr(stats, field)
    entry: dict[str, Any] = {
        "name": name,
        "zeros": histogram.zeros,
        "positive": histogram.positive.start,
        "negative": histogram.negative.start,
    }
    if channels is not None:
        entry["channels"] = {
            "axis": channels.axis,
            "samples": channels.samples,
            "spread": channels.spread.start,
        }
        arrays[f"{prefix}channel_spread"] = channels.spread.weights
        for field in _CHANNEL_FIELDS:
            arrays[f"{prefix}channel_{field}"] = getattr(channels, field)
    return entry


def _unpack(prefix: str, entry: Mapping[str, Any], arrays: Mapping[str, Array]) -> TensorStatistics:
    histogram = FloatHistogram(
        zeros=int(entry["zeros"]),
        positive=Window(start=int(entry["positive"]), counts=arrays[f"{prefix}positive"]),
        negative=Window(start=int(entry["negative"]), counts=arrays[f"{prefix}negative"]),
    )
    channels = None
    if "channels" in entry:
        fields = {field: arrays[f"{prefix}channel_{field}"] for field in _CHANNEL_FIELDS}
        channels = ChannelStatistics(
            axis=int(entry["channels"]["axis"]),
            samples=int(entry["channels"]["samples"]),
            spread=ChannelSpread(
                start=int(entry["channels"]["spread"]), weights=arrays[f"{prefix}channel_spread"]
            ),
            **fields,
        )
    samples = {field: arrays[prefix + field] for field in _SAMPLE_FIELDS}
    return TensorStatistics(histogram=histogram, channels=channels, **samples)


def _write_atomically(path: Path, arrays: Mapping[str, Array]) -> None:
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
                stream.flush()
                os.fsync(stream.fileno())
            Path(name).chmod(0o666 & ~_umask())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ArtifactError(f"Cannot write statistics to '{path}': {error.strerror}.") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _read(path: str | Path) -> dict[str, Array]:
    try:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ArtifactError(_foreign(path, "a single NumPy array"))
        with archive:
            return {name: archive[name] for name in archive.files}
    except OSError as error:
        raise ArtifactError(
            f"Cannot read statistics '{path}': {error.strerror or error}. Give a file that "
            "`tvm-quant` wrote with --save-stats, or profile again."
        ) from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ArtifactError(_foreign(path, f"no readable NumPy archive ({error})")) from error


def _header(path: str | Path, arrays: Mapping[str, Array]) -> dict[str, Any]:
    try:
        header = json.loads(bytes(arrays["header"]).decode())
    except (KeyError, UnicodeDecodeError, json.JSONDecodeError):
        header = None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ArtifactError(_foreign(path, f"an archive of {sorted(arrays)[:5]}"))
    if header.get("version") != VERSION:
        raise ArtifactError(
            f"Statistics file '{path}' has version {header.get('version')}; this tvm_quant reads "
            f"version {VERSION}. Profile again, or use the tvm_quant that wrote it."
        )
    return header


def _foreign(path: str | Path, what: str) -> str:
    return f"'{path}' is no statistics file of tvm_quant: it is {what}. Profile again to make one."
