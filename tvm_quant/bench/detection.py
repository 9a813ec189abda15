"""Detection: decoding FastestDet, suppressing duplicates, average precision."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tvm_quant.bench.samples import Array

SCORE_FLOOR = 0.001
NMS_IOU = 0.45
MATCH_IOU = 0.5
RECALL_LEVELS = np.linspace(0, 1, 101)


def decode_fastestdet(output: Array) -> Array:
    """Boxes of one image.

    Args:
        output: float32, (85, H, W): objectness, four box numbers, 80 classes.

    Returns:
        float64, (boxes, 6): score, class, x0, y0, x1, y1 in 0..1, best score first.
    """
    rows, columns = output.shape[1:]
    values = output.astype(np.float64)
    kind = values[5:].argmax(0)
    score = np.maximum(values[0], 0) ** 0.6 * np.maximum(values[5:].max(0), 0) ** 0.4
    y, x = np.mgrid[:rows, :columns]
    x, y = (x + np.tanh(values[1])) / columns, (y + np.tanh(values[2])) / rows
    width, height = (1 / (1 + np.exp(-value)) for value in values[3:5])
    fields = [score, kind, x - width / 2, y - height / 2, x + width / 2, y + height / 2]
    found = np.stack([field.ravel() for field in fields], axis=1)
    found = found[found[:, 0] > SCORE_FLOOR]
    return without_duplicates(found[np.argsort(-found[:, 0], kind="stable")])


def without_duplicates(found: Array, limit: float = NMS_IOU) -> Array:
    """Non-maximum suppression within each class.

    Args:
        found: (boxes, 6) as `decode_fastestdet` gives it, best score first.
        limit: IoU above which the lower score goes.
    """
    alive = np.ones(len(found), bool)
    for place, (_score, kind, *box) in enumerate(found):
        if alive[place]:
            later = found[place + 1 :]
            covered = (later[:, 1] == kind) & (iou(np.asarray(box), later[:, 2:]) > limit)
            alive[place + 1 :] &= ~covered
    return found[alive]


def iou(box: Array, others: Array) -> Array:
    """Intersection over union of one box, (4,), with others, (N, 4): x0, y0, x1, y1.

    >>> iou(np.array([0, 0, 2, 2.0]), np.array([[1, 0, 3, 2.0], [2, 0, 3, 1.0]])).round(3).tolist()
    [0.333, 0.0]
    """
    low = np.maximum(box[:2], others[:, :2])
    high = np.minimum(box[2:], others[:, 2:])
    shared = np.prod(np.maximum(high - low, 0), axis=1)
    areas = np.prod(others[:, 2:] - others[:, :2], axis=1)
    union = np.prod(box[2:] - box[:2]) + areas - shared
    return np.where(union > 0, shared / np.where(union > 0, union, 1), 0.0)


def mean_average_precision(found: Sequence[Array], truth: Sequence[Array]) -> float:
    """AP at IoU 0.5, averaged over the classes that occur in `truth`, 0 to 1.

    Args:
        found: per image, (boxes, 6): score, class, box.
        truth: per image, (boxes, 5): class, box.
    """
    kinds = sorted({int(kind) for boxes in truth for kind in boxes[:, 0]})
    values = [average_precision(found, truth, kind) for kind in kinds]
    return float(np.mean(values)) if values else float("nan")


def average_precision(found: Sequence[Array], truth: Sequence[Array], kind: int) -> float:
    """Mean of the precision envelope of one class at 101 levels of recall, as COCO does it."""
    scores, hits = [], []
    for boxes, wanted in zip(found, truth, strict=True):
        mine = boxes[boxes[:, 1] == kind]
        mine = mine[np.argsort(-mine[:, 0], kind="stable")]
        scores += mine[:, 0].tolist()
        hits += _matches(mine[:, 2:], wanted[wanted[:, 0] == kind][:, 1:])
    total = sum(int((wanted[:, 0] == kind).sum()) for wanted in truth)
    order = np.argsort(-np.asarray(scores), kind="stable")
    right = np.cumsum(np.asarray(hits, float)[order]) if hits else np.zeros(0)
    precision = right / np.arange(1, len(right) + 1)
    envelope = np.append(np.maximum.accumulate(precision[::-1])[::-1], 0.0)
    return float(envelope[np.searchsorted(right / total, RECALL_LEVELS)].mean())


def _matches(boxes: Array, wanted: Array) -> list[bool]:
    """Whether each box, best first, meets a true box that no earlier one met."""
    free = np.ones(len(wanted), bool)
    hits = []
    for box in boxes:
        overlap = np.where(free, iou(box, wanted), 0.0) if len(wanted) else np.zeros(0)
        best = int(overlap.argmax()) if len(overlap) else -1
        hit = best >= 0 and bool(overlap[best] >= MATCH_IOU)
        hits.append(hit)
        if hit:
            free[best] = False
    return hits
