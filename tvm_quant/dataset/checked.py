"""`as_dataset`: any data a user has, checked against the model, as batches the model takes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.config import BadData, ZeroData
from tvm_quant.dataset.arrays import Array
from tvm_quant.dataset.batching import Batch, regroup, rows
from tvm_quant.dataset.bind import RawBatch, listed
from tvm_quant.dataset.check import bad_samples, conform, is_batched, what_is_bad
from tvm_quant.dataset.findings import Findings
from tvm_quant.dataset.open_source import open_source
from tvm_quant.dataset.preprocess import Preprocess
from tvm_quant.dataset.source import CHUNK, DatasetWarning, Request, Source, image_input
from tvm_quant.errors import DatasetError
from tvm_quant.ir import TensorInfo


def as_dataset(
    source: Any,
    signature: Sequence[TensorInfo],
    *,
    limit: int | None = None,
    preprocess: Preprocess | None = None,
    on_bad: BadData | str = BadData.ERROR,
    on_zero: ZeroData | str = ZeroData.ERROR,
) -> CheckedDataset:
    """Check data against a model's inputs, before anything slow happens, and make it iterable.

    Reads the data once from end to end, a few samples in memory at a time.

    Args:
        source: an iterable of batches (a tensor, a tuple in the order of the inputs, a mapping by
            input name, an MXNet batch; each may carry labels, see `bind`), a function that returns
            one, stacked samples (an array, a mapping), the path of an `.npz` or `.npy` file, or of
            a folder of images. Tensors may be of NumPy, torch, TVM, MXNet or lists of numbers.
        signature: the model's inputs. Where axis 0 is symbolic, batches of an iterable stay as they
            are. Where it is fixed, samples are cut and joined along axis 0 to fit; a leftover is
            filled up by repeating its samples.
        limit: samples used at most, rounded up to full fixed batches; the first ones, or evenly
            spaced ones of a folder.
        preprocess: how images (uint8, channels last) become inputs; needed for folders.
        on_bad: what to do with samples that hold NaN or Inf.
        on_zero: what to do when a float input is zero everywhere.

    Raises:
        DatasetError: data that does not fit; the message names the tensor and the sample.
    """
    inputs = tuple(signature)
    if isinstance(source, CheckedDataset):
        return source.fitted(inputs, limit)
    if not inputs:
        raise DatasetError("the model has no inputs, so there is nothing to calibrate or evaluate")
    if source is None:
        raise DatasetError(f"no data was given for {listed(inputs)}")
    if limit is not None and limit < 1:
        raise DatasetError(f"the limit is {limit} samples; expected 1 or more")
    dataset = CheckedDataset(
        source=open_source(source, Request(signature=inputs, preprocess=preprocess)),
        signature=inputs,
        limit=limit,
        preprocess=preprocess,
        on_bad=_choice(BadData, on_bad, "on_bad"),
        on_zero=_choice(ZeroData, on_zero, "on_zero"),
    )
    dataset.check()
    return dataset


@dataclass
class CheckedDataset:
    """Batches that fit the model; made by `as_dataset`.

    Iterating gives `{input name: array}`. It can be repeated, and each pass checks what it reads.
    """

    source: Source
    signature: tuple[TensorInfo, ...]
    limit: int | None
    preprocess: Preprocess | None
    on_bad: BadData
    on_zero: ZeroData

    samples: int = 0
    """Samples of one pass, without skipped ones."""

    batches: int = 0
    """Batches of one pass."""

    labelled: bool = False
    """All samples have labels."""

    skipped: list[str] = field(default_factory=list)
    """Why samples were left out, one line each."""

    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    """(smallest, largest) value of each input over all samples."""

    def __iter__(self) -> Iterator[dict[str, Array]]:
        for batch in self.with_labels():
            yield batch.inputs

    def __len__(self) -> int:
        return self.batches

    @property
    def description(self) -> str:
        """One line for reports: where the data came from and how much of it was used."""
        return f"{self.source.description}, {self.samples} samples"

    def with_labels(self) -> Iterator[Batch]:
        """Batches with the labels of their samples.

        Raises:
            DatasetError: the source gave fewer samples than when it was checked.
        """
        given = 0
        for batch in self._batches(Findings()):
            given += batch.valid
            yield batch
        if given < self.samples:
            raise DatasetError(
                f"{self.source.description} gave {self.samples} samples at the first pass and "
                f"{given} at this one; it cannot be read again. Pass a list, or a class whose "
                "__iter__ starts anew"
            )

    def fitted(self, signature: tuple[TensorInfo, ...], limit: int | None) -> CheckedDataset:
        """The same data for a model whose inputs have the same names."""
        if signature == self.signature and limit in (None, self.limit):
            return self
        if {info.name for info in signature} != {info.name for info in self.signature}:
            raise DatasetError(
                f"the data set was checked for {listed(self.signature)}, the model has "
                f"{listed(signature)}"
            )
        changed = replace(self, signature=signature, limit=limit or self.limit)
        changed.check()
        return changed

    def check(self) -> None:
        """Read everything once, record what was seen, refuse or warn."""
        findings = Findings()
        self.samples = self.batches = filled = 0
        self.labelled = True
        for batch in self._batches(findings):
            self.samples += batch.valid
            self.batches += 1
            self.labelled = self.labelled and batch.labels is not None
            filled = self._fixed - batch.valid if self._fixed else 0
        self.skipped = findings.skipped
        self.ranges = findings.ranges
        self._judge(findings, filled)

    @property
    def _fixed(self) -> int | None:
        """Size of the model's fixed batch."""
        return self.signature[0].shape[0] if is_batched(self.signature) else None

    def _batches(self, findings: Findings) -> Iterator[Batch]:
        runs = self._runs(findings)
        if not is_batched(self.signature):
            return runs
        if self._fixed is not None:
            return regroup(runs, self._fixed, fixed=True)
        return runs if self.source.keeps_batches else regroup(runs, CHUNK, fixed=False)

    def _runs(self, findings: Findings) -> Iterator[Batch]:
        """Checked samples in the groups in which the source gives them, up to the limit."""
        limit = self.limit
        if limit is not None and self._fixed:
            limit = math.ceil(limit / self._fixed) * self._fixed
        left = limit
        for raw in self.source.batches(limit):
            run = self._good_rows(self._conform(raw), raw.where, findings)
            if left is not None and run.valid > left:
                run = rows(run, 0, left)
            if not run.valid:
                continue
            findings.widen(run)
            yield run
            if left is not None:
                left -= run.valid
                if not left:
                    return

    def _conform(self, raw: RawBatch) -> Batch:
        arrays = dict(raw.arrays)
        if self.preprocess is not None:
            name = image_input(Request(signature=self.signature, preprocess=self.preprocess)).name
            arrays[name] = self.preprocess(arrays[name])
        batched = is_batched(self.signature)
        inputs = {
            info.name: conform(arrays[info.name], info, raw.where, batched=batched)
            for info in self.signature
        }
        counts = {name: len(array) for name, array in inputs.items()} if batched else {"": 1}
        labels = None if raw.labels is None else np.atleast_1d(raw.labels)
        if labels is not None and batched:
            counts["labels"] = len(labels)
        if len(set(counts.values())) > 1:
            raise DatasetError(
                f"{raw.where}: the tensors hold different numbers of samples: "
                + ", ".join(f"'{name}' {count}" for name, count in counts.items())
            )
        return Batch(inputs=inputs, labels=labels, valid=next(iter(counts.values())))

    def _good_rows(self, run: Batch, where: str, findings: Findings) -> Batch:
        first, findings.seen = findings.seen, findings.seen + run.valid
        good = np.ones(run.valid, np.bool_)
        for name, array in run.inputs.items():
            by_sample = array if is_batched(self.signature) else array[None]
            for row in np.flatnonzero(bad_samples(by_sample)):
                kind = what_is_bad(by_sample[row])
                message = f"input '{name}' has {kind} in sample {first + row} ({where})"
                if self.on_bad is BadData.ERROR:
                    raise DatasetError(
                        f"{message}. Check the preprocessing, or leave such samples out with "
                        "on_bad='skip' (--on-bad skip)"
                    )
                if good[row]:
                    findings.skipped.append(message)
                good[row] = False
        return run if good.all() else _kept(run, good, is_batched(self.signature))

    def _judge(self, findings: Findings, filled: int) -> None:
        """Refuse or warn about what only the whole set shows."""
        if not findings.seen:
            raise DatasetError(
                f"{self.source.description} gives no samples for {listed(self.signature)}. An "
                "iterator that was read before is exhausted: pass a new one, a list, or a function "
                "that makes one"
            )
        if not self.samples:
            raise DatasetError(f"all {findings.seen} samples hold NaN or Inf: {self.skipped[0]}")
        if self.skipped:
            lines = "; ".join(self.skipped[:3])
            _warn(f"left out {len(self.skipped)} of {findings.seen} samples: {lines}")
        for name in findings.zero_inputs(self.signature):
            self._remark_zero(name)
        if self.samples == 1:
            _warn("the data is a single sample; what rests on it alone is rough")
        if filled:
            _warn(
                f"the last batch has {(self._fixed or 0) - filled} of the {self._fixed} samples "
                "the model takes; it was filled up by repeating them"
            )

    def _remark_zero(self, name: str) -> None:
        message = f"input '{name}' is zero in all {self.samples} samples"
        if self.on_zero is ZeroData.ERROR:
            raise DatasetError(
                f"{message}; no range can be learned from that. Check the preprocessing, or pass "
                "on_zero='warn' (--on-zero warn) if it is meant"
            )
        _warn(message)


def _kept(run: Batch, good: npt.NDArray[np.bool_], batched: bool) -> Batch:
    if not batched:
        return replace(run, valid=0)
    return Batch(
        inputs={name: array[good] for name, array in run.inputs.items()},
        labels=None if run.labels is None else run.labels[good],
        valid=int(good.sum()),
    )


def _choice(enum: type[Any], value: Any, name: str) -> Any:
    try:
        return enum(getattr(value, "value", value))
    except ValueError:
        names = ", ".join(member.value for member in enum)
        raise DatasetError(f"{name} is {value!r}; choose one of {names}") from None


def _warn(message: str) -> None:
    warnings.warn(message, DatasetWarning, stacklevel=5)
