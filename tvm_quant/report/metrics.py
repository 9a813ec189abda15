"""`METRICS`: what the outputs of a network are worth, by name.

A metric is a number that is larger the better. Anything callable as `metric(outputs, labels)` can
stand in for a row: it gets the outputs of all samples, each joined along axis 0, and the labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_quant.dataset import CheckedDataset
from tvm_quant.errors import ConfigError, DatasetError
from tvm_quant.report.sqnr import sqnr_db

Array = npt.NDArray[Any]
Outputs = Sequence[Array]
#: (outputs, labels) to a number, larger is better.
Score = Callable[[Outputs, Any], float]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A row of the table.

    Attributes:
        name: as users write it.
        summary: one line for help texts.
        unit: of the number.
        score: from (reference outputs, outputs, labels) to the number.
        needs_labels: whether it reads the labels.
    """

    name: str
    summary: str
    unit: str
    score: Callable[[Outputs, Outputs, Any], float]
    needs_labels: bool = False


def _top1(_reference: Outputs, outputs: Outputs, labels: Any) -> float:
    scores = _scores(outputs)
    return 100.0 * float(np.mean(scores.argmax(1) == class_numbers(labels, scores.shape[1])))


def _agreement(reference: Outputs, outputs: Outputs, _labels: Any) -> float:
    return 100.0 * float(np.mean(_scores(reference).argmax(1) == _scores(outputs).argmax(1)))


def _sqnr(reference: Outputs, outputs: Outputs, _labels: Any) -> float:
    return min(sqnr_db(one, other) for one, other in zip(reference, outputs, strict=True))


METRICS: dict[str, Metric] = {
    row.name: row
    for row in (
        Metric(
            name="top1",
            summary="share of samples whose label has the highest score",
            unit="points",
            score=_top1,
            needs_labels=True,
        ),
        Metric(
            name="agreement",
            summary="share of samples for which float chooses the same class",
            unit="points",
            score=_agreement,
        ),
        Metric(
            name="sqnr",
            summary="signal to quantization noise ratio of the worst output",
            unit="dB",
            score=_sqnr,
        ),
    )
}


def metric(which: str | Score) -> Metric:
    """The row of that name, or one made of a function `(outputs, labels) -> float`.

    Raises:
        ConfigError: no such name; the message lists the names.
    """
    if callable(which):
        name = getattr(which, "__name__", type(which).__name__)
        function = which
        return Metric(
            name=name,
            summary="given by the caller",
            unit="",
            score=lambda _reference, outputs, labels: float(function(outputs, labels)),
        )
    if which not in METRICS:
        raise ConfigError(f"metric is {which!r}; expected one of {list(METRICS)} or a function.")
    return METRICS[which]


def class_scores(output: Array) -> Array | None:
    """(samples, classes) if the output is a table of scores: (N, C) or (N, C, 1, 1); else None."""
    if output.ndim < 2 or output.shape[1] < 2 or np.prod(output.shape[2:]) != 1:
        return None
    return output.reshape(len(output), -1)


def class_numbers(labels: Any, count: int) -> Array:
    """(samples,) class numbers, from numbers or from one-hot rows.

    Raises:
        DatasetError: they are neither.
    """
    array = np.asarray(labels)
    flat = array.reshape(len(array), -1)
    if flat.shape[1] == count:
        return np.asarray(flat.argmax(1))
    if flat.shape[1] == 1 and np.array_equal(flat, np.round(np.asarray(flat, np.float64))):
        return flat[:, 0].astype(np.int64)
    raise DatasetError(
        f"labels of shape {array.shape} and dtype {array.dtype} are no class numbers; expected "
        f"one integer a sample, or {count} values of which the largest marks the class"
    )


def _scores(outputs: Outputs) -> Array:
    scores = class_scores(outputs[0])
    if scores is None:
        raise DatasetError(
            f"the first output has shape {outputs[0].shape}, which is no table of scores "
            "(samples, classes); choose metric 'sqnr', or give a function (outputs, labels)"
        )
    return scores


def require_labels(row: Metric, dataset: CheckedDataset) -> None:
    """Check that the data has what a metric reads.

    Raises:
        DatasetError: it needs labels, and not all samples have one.
    """
    if row.needs_labels and not dataset.labelled:
        raise DatasetError(
            f"metric '{row.name}' needs labels, and {dataset.description} has none for some; give "
            "labelled data (an .npz with `label`, folders named by class), or choose 'agreement'"
        )
