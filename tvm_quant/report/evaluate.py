"""Float against quantized over a data set: accuracy, agreement, noise at outputs and in layers."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import IRModule

from tvm_quant.backend import Runner
from tvm_quant.dataset import Batch, CheckedDataset
from tvm_quant.ir import bindings, op_name, tapped
from tvm_quant.ir.signature import main_function
from tvm_quant.report.layers import layer_variables
from tvm_quant.report.metrics import class_numbers, class_scores
from tvm_quant.report.sqnr import SqnrMeter

Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class LayerSqnr:
    """Noise in one layer, caused by it and by all layers before it."""

    node: str
    op: str
    sqnr_db: float


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What a comparison found.

    Attributes:
        samples: samples that both modules ran on.
        top1_float, top1_int8: share of samples whose label has the highest score, 0 to 1; None
            without labels, or where the first output is no table of scores.
        agreement: share of samples for which both choose the same class, 0 to 1, or None.
        output_sqnr_db: of each output, in dB.
        layers: of each layer, in execution order; empty unless asked for.
    """

    samples: int
    top1_float: float | None
    top1_int8: float | None
    agreement: float | None
    output_sqnr_db: list[float]
    layers: list[LayerSqnr] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def evaluate(
    reference: IRModule | Runner,
    quantized: IRModule | Runner,
    dataset: CheckedDataset,
    *,
    target: str = "llvm",
) -> Evaluation:
    """Run both modules over the same batches.

    Args:
        reference: the float module, or a runner of it.
        quantized: the integer module, or a runner of it, with the same inputs and outputs.
        dataset: batches for them; labels give the accuracies.
        target: what to compile modules for.

    Raises:
        DatasetError: labels that are no class numbers.
    """
    runners = [
        side if isinstance(side, Runner) else Runner(side, target)
        for side in (reference, quantized)
    ]
    tally = _Tally()
    for batch in dataset.with_labels():
        exact, close = (
            [valid_rows(np.asarray(output), batch) for output in runner.run(batch.inputs)]
            for runner in runners
        )
        tally.add(exact, close, batch)
    return tally.result()


def layer_sqnr(
    reference: IRModule, calibrated: IRModule, dataset: CheckedDataset, *, target: str = "llvm"
) -> list[LayerSqnr]:
    """Compare two modules layer by layer, variables of equal name.

    A layer counts as the reference has it: before the factors that `MatchScales` puts behind it.

    Args:
        reference: the float module after Prepare.
        calibrated: the same with calibrated quantizers; both in float, so values can be compared.
        dataset: a few batches are enough.
        target: what to compile both for.
    """
    ops = {str(b.var.name): op_name(b.value) or "call" for b in bindings(main_function(calibrated))}
    layers = {node: var for node, var in layer_variables(reference).items() if var in ops}
    if not layers:
        return []
    names = list(layers.values())
    runners = [Runner(tapped(mod, names), target) for mod in (reference, calibrated)]
    meters = [SqnrMeter() for _ in names]
    for batch in dataset.with_labels():
        exact, close = (runner.run(batch.inputs) for runner in runners)
        for meter, one, other in zip(meters, exact, close, strict=True):
            meter.add(valid_rows(np.asarray(one), batch), valid_rows(np.asarray(other), batch))
    return [
        LayerSqnr(node=node, op=ops[var], sqnr_db=meter.db)
        for (node, var), meter in zip(layers.items(), meters, strict=True)
    ]


def valid_rows(output: Array, batch: Batch) -> Array:
    """An output without the rows that only fill up a fixed batch."""
    rows = next((len(a) for a in batch.inputs.values() if a.ndim), 0)
    per_sample = output.ndim > 0 and len(output) == rows and batch.valid < rows
    return output[: batch.valid] if per_sample else output


@dataclass
class _Tally:
    samples: int = 0
    scored: bool = True
    labelled: bool = True
    hits_float: int = 0
    hits_int8: int = 0
    agreed: int = 0
    meters: list[SqnrMeter] = field(default_factory=list)

    def add(self, exact: list[Array], close: list[Array], batch: Batch) -> None:
        self.samples += batch.valid
        self.meters = self.meters or [SqnrMeter() for _ in exact]
        for meter, one, other in zip(self.meters, exact, close, strict=True):
            meter.add(one, other)
        scores = _scores(exact[0], batch), _scores(close[0], batch)
        if scores[0] is None or scores[1] is None:
            self.scored = False
            return
        answers = scores[0].argmax(1), scores[1].argmax(1)
        self.agreed += int((answers[0] == answers[1]).sum())
        if batch.labels is None:
            self.labelled = False
            return
        labels = class_numbers(batch.labels, scores[0].shape[1])
        self.hits_float += int((answers[0] == labels).sum())
        self.hits_int8 += int((answers[1] == labels).sum())

    def result(self) -> Evaluation:
        rated = self.scored and self.labelled
        return Evaluation(
            samples=self.samples,
            top1_float=self.hits_float / self.samples if rated else None,
            top1_int8=self.hits_int8 / self.samples if rated else None,
            agreement=self.agreed / self.samples if self.scored else None,
            output_sqnr_db=[meter.db for meter in self.meters],
        )


def _scores(output: Array, batch: Batch) -> Array | None:
    return class_scores(output) if output.ndim and len(output) == batch.valid else None
