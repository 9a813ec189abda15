"""How each quantizer came by its range: kept in the module, told to the user."""

from __future__ import annotations

import json
import logging
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from tvm import IRModule, relax

from tvm_quant.config import ZeroData
from tvm_quant.errors import CalibrationError
from tvm_quant.ir.signature import main_function
from tvm_quant.op import Kind
from tvm_quant.transform.quantizers import Quantizer

RANGES = "tvm_quant.ranges"

logger = logging.getLogger("tvm_quant")


class CalibrationWarning(UserWarning):
    """Calibration went through, but something about the data should be looked at."""


@dataclass(frozen=True, kw_only=True)
class RangeRecord:
    """How a quantizer came by its range.

    Attributes:
        estimator: name of the estimator.
        low, high: the range.
        minimum, maximum: extremes of the data; None without data.
        dropped: samples left out as outliers.
    """

    estimator: str
    low: float
    high: float
    minimum: float | None = None
    maximum: float | None = None
    dropped: tuple[int, ...] = ()


def range_records(func: relax.Function) -> dict[str, RangeRecord]:
    """How each quantizer of a function came by its range, by the quantizer's variable."""
    stored = func.attrs.get(RANGES) if func.attrs else None
    loaded = json.loads(str(stored)) if stored else {}
    return {
        name: RangeRecord(**{**fields, "dropped": tuple(fields["dropped"])})
        for name, fields in loaded.items()
    }


def with_records(mod: IRModule, records: Mapping[str, RangeRecord]) -> IRModule:
    """The module with `records` added to those of `main`."""
    func = main_function(mod)
    merged = {name: asdict(r) for name, r in {**range_records(func), **records}.items()}
    result = IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    result.update_func(mod.get_global_var("main"), func.with_attr(RANGES, json.dumps(merged)))
    return result


def report_zero(
    quantizers: Sequence[Quantizer], records: Mapping[str, RangeRecord], policy: ZeroData
) -> None:
    """Refuse zero inputs; warn once about other tensors that are zero in all samples."""
    zero = [q for q in quantizers if records[q.name].minimum == records[q.name].maximum == 0.0]
    inputs = [quantizer for quantizer in zero if quantizer.kind is Kind.INPUT]
    if inputs and policy is ZeroData.ERROR:
        raise CalibrationError(
            f"No range for {inputs[0]}: it is zero in every calibration sample. Check the "
            "preprocessing, or pass on_zero='warn' if it is meant."
        )
    if zero:
        names = "; ".join(str(quantizer) for quantizer in zero[:5])
        warnings.warn(
            f"Zero in every calibration sample, so their scale is a guess: {names}"
            f"{f' and {len(zero) - 5} more' if len(zero) > 5 else ''}. Check the data.",
            CalibrationWarning,
            stacklevel=2,
        )


def report_dropped(records: Mapping[str, RangeRecord]) -> None:
    """Log each sample that was left out, and where."""
    tensors: dict[int, list[str]] = defaultdict(list)
    for name, record in records.items():
        for sample in record.dropped:
            tensors[sample].append(name)
    for sample, names in sorted(tensors.items()):
        record = records[names[0]]
        logger.warning(
            "Calibration sample %d is an outlier in %d of %d tensors and left out there; first in "
            "'%s', which reaches from %g to %g and is calibrated from %g to %g.",
            sample,
            len(names),
            len(records),
            names[0],
            record.minimum,
            record.maximum,
            record.low,
            record.high,
        )
