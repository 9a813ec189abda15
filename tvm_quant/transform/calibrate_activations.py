"""CalibrateActivations: give the quantizers of activations and inputs their scales.

Before    qx = simulated_quantize(x, Kind.ACTIVATION)
After     qx = simulated_quantize(x, scale, zero_point, Kind.ACTIVATION)

Quantizers of one group get one scale, which covers the ranges of all. Which range was found for
each tensor, and which samples were left out, is recorded in the module: see `range_records`.

Needs Annotate, and the statistics of Profile unless the estimator works without. Quantizers that
have a scale already keep it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import IRModule, relax

from tvm_quant.config import BiasCorrection, QuantizeConfig
from tvm_quant.errors import CalibrationError
from tvm_quant.estimator import (
    ActivationEstimator,
    GlobalScale,
    Range,
    activation_estimator,
    power_of_two_grid,
    scale_zero_point,
)
from tvm_quant.ir import constant_value
from tvm_quant.ir.signature import main_function
from tvm_quant.op import Kind, is_calibrated, known_range, spec_of
from tvm_quant.op.simulated_quantize import NO_GROUP, group_of
from tvm_quant.placement import layer_config
from tvm_quant.statistics import Statistics, TensorStatistics
from tvm_quant.transform.calibrate_weights import power_of_two_scales
from tvm_quant.transform.profiling import fingerprint
from tvm_quant.transform.quantizers import Quantizer, quantizers, set_scales
from tvm_quant.transform.range_records import (
    RangeRecord,
    report_dropped,
    report_zero,
    with_records,
)

Array = npt.NDArray[Any]


@tvm.transform.module_pass(opt_level=0, name="CalibrateActivations")
class CalibrateActivations:
    """Fill in scale and zero point of every quantizer of kind INPUT and ACTIVATION.

    Args:
        statistics: of the operands; None makes `global_scale` the estimator of all.
        config: names the estimator, its options, and overrides by layer.
    """

    def __init__(self, statistics: Statistics | None = None, config: QuantizeConfig | None = None):
        self.statistics = statistics
        self.config = config or QuantizeConfig()

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """Run the pass."""
        func = main_function(mod)
        open_ones = [
            quantizer
            for quantizer in quantizers(func)
            if quantizer.kind in (Kind.INPUT, Kind.ACTIVATION) and not is_calibrated(quantizer.call)
        ]
        if not open_ones:
            return mod
        self._check_statistics(mod)
        records = {quantizer.name: self._record(func, quantizer) for quantizer in open_ones}
        report_zero(open_ones, records, self.config.on_zero)
        report_dropped(records)
        scales = self._scales(open_ones, records)
        return with_records(set_scales(mod, scales), records)

    def _check_statistics(self, mod: IRModule) -> None:
        if self.statistics is None or not self.statistics.fingerprint:
            return
        if self.statistics.fingerprint != fingerprint(mod):
            raise CalibrationError(
                "The statistics were gathered on another network, or on this one prepared in "
                "another way (equalization, input shapes). Profile this one."
            )

    def _record(self, func: relax.Function, quantizer: Quantizer) -> RangeRecord:
        estimator = self._estimator(quantizer)
        stats = self._statistics_of(quantizer)
        if stats is None and estimator.needs_statistics:
            raise CalibrationError(_missing(quantizer, self.statistics))
        found = estimator.range(stats, spec_of(quantizer.call))  # type: ignore[arg-type]
        if not estimator.needs_statistics:
            found = _within(found, known_range(func, quantizer.call.args[0]))
        return RangeRecord(
            estimator=estimator.name,
            low=found.low,
            high=found.high,
            minimum=stats.minimum if stats else None,
            maximum=stats.maximum if stats else None,
            dropped=found.dropped,
        )

    def _estimator(self, quantizer: Quantizer) -> ActivationEstimator:
        if self.statistics is None:
            return GlobalScale(value=self.config.global_scale)
        return layer_estimator(self.config, quantizer)

    def _statistics_of(self, quantizer: Quantizer) -> TensorStatistics | None:
        if quantizer.source is None:
            return TensorStatistics.of(np.asarray(constant_value(quantizer.call.args[0])))
        stats = self.statistics.get(quantizer.source) if self.statistics else None
        return stats if stats is not None and not stats.is_empty else None

    def _scales(
        self, open_ones: list[Quantizer], records: dict[str, RangeRecord]
    ) -> dict[str, tuple[Array, Array]]:
        return {
            quantizer.name: self._scale(quantizer, members, records)
            for members in _groups(open_ones)
            for quantizer in members
        }

    def _scale(
        self, quantizer: Quantizer, members: list[Quantizer], records: dict[str, RangeRecord]
    ) -> tuple[Array, Array]:
        """Scale and zero point that cover the ranges of all members of a group."""
        spec = spec_of(quantizer.call)
        power_of_two = power_of_two_scales(self.config)
        low = min(records[member.name].low for member in members)
        high = max(records[member.name].high for member in members)
        if spec.axis is None and power_of_two:
            known = [self._statistics_of(member) for member in members]
            return power_of_two_grid(low, high, spec, [stats for stats in known if stats])
        if spec.axis is None:
            return scale_zero_point(low, high, spec)
        stats = self._statistics_of(quantizer)
        if stats is None or stats.channels is None or stats.channels.axis != spec.axis:
            raise CalibrationError(
                f"No statistics by channel (axis {spec.axis}) for {quantizer}. Profile this "
                "network again, or use one scale per tensor."
            )
        lows = np.clip(stats.channels.minimum, low, 0.0)
        highs = np.clip(stats.channels.maximum, 0.0, high)
        silent = (lows == 0.0) & (highs == 0.0)
        ends = np.where(silent, low, lows), np.where(silent, high, highs)
        scale, zero_point = scale_zero_point(*ends, spec, power_of_two=power_of_two)
        shape = [1] * int(quantizer.call.args[0].ty.ndim)
        shape[spec.axis] = -1
        return scale.reshape(shape), zero_point.reshape(shape)


def layer_estimator(config: QuantizeConfig, quantizer: Quantizer) -> ActivationEstimator:
    """The estimator of the layers that read a quantizer."""
    layer = layer_config(config, *quantizer.names)
    name = layer.activation_estimator or config.activation_estimator
    if name == GlobalScale.name:
        return GlobalScale(value=config.global_scale)
    return activation_estimator(name, config.estimator_options)


def needs_counts(config: QuantizeConfig) -> bool:
    """Whether quantizing by `config` takes more than the extremes of each tensor and sample."""
    chosen = {config.activation_estimator}
    chosen |= {layer.activation_estimator or "" for layer in config.overrides.values()} - {""}
    return (
        any(activation_estimator(name).needs_counts for name in chosen)
        or config.match_channel_scales
        or config.bias_correction is not BiasCorrection.NONE
        or power_of_two_scales(config)
    )


def _groups(open_ones: list[Quantizer]) -> list[list[Quantizer]]:
    """Quantizers that share a scale; most are alone."""
    groups: dict[object, list[Quantizer]] = defaultdict(list)
    for quantizer in open_ones:
        group = group_of(quantizer.call)
        groups[quantizer.name if group == NO_GROUP else group].append(quantizer)
    return list(groups.values())


def _within(found: Range, known: tuple[float, float]) -> Range:
    return Range.around_zero(max(found.low, known[0]), min(found.high, known[1]))


def _missing(quantizer: Quantizer, statistics: Statistics | None) -> str:
    known = len(statistics or ())
    if statistics is not None and quantizer.source in statistics:
        return (
            f"No range for {quantizer}: it was empty in every calibration sample, so it never ran. "
            "Add samples that reach it, or leave the layer in float with `skip`."
        )
    return (
        f"No range for {quantizer}: no statistics of it among the {known} tensors profiled. Run "
        "Profile on this module, give a data set, or use activation_estimator='global_scale'."
    )
