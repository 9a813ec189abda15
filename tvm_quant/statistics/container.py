"""`Statistics`: what one pass over the calibration data leaves behind, by tensor name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tvm_quant.errors import CalibrationError
from tvm_quant.statistics import storage
from tvm_quant.statistics.tensor import TensorStatistics


class Statistics(Mapping[str, TensorStatistics]):
    """Statistics of each profiled tensor, keyed by the name of its variable.

    Shards of a data set can be profiled anywhere and merged; in a fixed order the result is the
    same to the bit.

    Attributes:
        samples: number of samples profiled.
        fingerprint: of the network that was profiled; empty if unknown.

    >>> import numpy as np
    >>> first = Statistics({"x": TensorStatistics.of(np.float32([1, 2]))}, samples=1)
    >>> later = Statistics({"x": TensorStatistics.of(np.float32([-4]))}, samples=1)
    >>> first.merge(later)
    >>> first["x"].minimum, first.samples
    (-4.0, 2)
    """

    def __init__(
        self,
        tensors: Mapping[str, TensorStatistics] | None = None,
        *,
        samples: int = 0,
        fingerprint: str = "",
    ):
        self._tensors = dict(tensors or {})
        self.samples = samples
        self.fingerprint = fingerprint

    def __getitem__(self, name: str) -> TensorStatistics:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def merge(self, later: Statistics) -> None:
        """Append the statistics of the samples that follow.

        Raises:
            CalibrationError: `later` was gathered on another network or on other tensors.
        """
        if not later.samples:
            return
        if self.samples:
            self._check_same_tensors(later)
            self._tensors = {name: stats.merge(later[name]) for name, stats in self.items()}
        else:
            self._tensors = dict(later.items())
        self.samples += later.samples
        self.fingerprint = self.fingerprint or later.fingerprint

    @classmethod
    def merged(cls, shards: Iterable[Statistics]) -> Statistics:
        """The statistics of all shards, in this order.

        Raises:
            CalibrationError: as for `merge`.
        """
        total = cls()
        for shard in shards:
            total.merge(shard)
        return total

    def save(self, path: str | Path) -> None:
        """Write to a file (`.npz` by content), replacing it at once or not at all.

        Raises:
            ArtifactError: the file cannot be written.
        """
        storage.save(path, self._tensors, samples=self.samples, fingerprint=self.fingerprint)

    @classmethod
    def load(cls, path: str | Path) -> Statistics:
        """Read a file that `save` wrote.

        Raises:
            ArtifactError: the file is missing, damaged, something else, or from a newer version.
        """
        tensors, samples, fingerprint = storage.load(path)
        return cls(tensors, samples=samples, fingerprint=fingerprint)

    def _check_same_tensors(self, later: Statistics) -> None:
        if self.fingerprint and later.fingerprint and self.fingerprint != later.fingerprint:
            raise CalibrationError(
                "Cannot merge statistics of two different networks (fingerprints "
                f"{self.fingerprint[:12]} and {later.fingerprint[:12]}). Profile both shards again "
                "with the same model file."
            )
        different = sorted(set(self) ^ set(later))
        if different:
            names = ", ".join(map(repr, different[:5]))
            raise CalibrationError(
                f"Cannot merge statistics: tensor(s) {names} are in one shard only. Profile both "
                "shards with the same model and configuration."
            )
