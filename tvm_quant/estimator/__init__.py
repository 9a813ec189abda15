"""Estimators of ranges and scales, all in the table `ESTIMATORS`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TypeVar

from tvm_quant.errors import ConfigError
from tvm_quant.estimator.affine import ceil_power_of_two, grid_ends, scale_zero_point
from tvm_quant.estimator.base import ActivationEstimator, Estimator, Range, WeightEstimator
from tvm_quant.estimator.error import ErrorModel
from tvm_quant.estimator.global_scale import GlobalScale
from tvm_quant.estimator.kl_divergence import KLDivergence
from tvm_quant.estimator.kl_symmetric import KLSymmetric
from tvm_quant.estimator.minmax import AbsMax, MinMax, MovingAverage
from tvm_quant.estimator.norm import MeanSquaredError, Norm
from tvm_quant.estimator.percentile import Percentile
from tvm_quant.estimator.power2 import PowerOfTwo
from tvm_quant.estimator.power_of_two import power_of_two_grid, power_of_two_weight_scale
from tvm_quant.estimator.robust import Robust

E = TypeVar("E", bound=Estimator)

ESTIMATORS: dict[str, Estimator] = {
    row.name: row
    for row in (
        Robust(),
        MinMax(),
        MovingAverage(),
        Percentile(),
        KLDivergence(),
        KLSymmetric(),
        MeanSquaredError(),
        Norm(),
        GlobalScale(),
        AbsMax(),
        PowerOfTwo(),
    )
}


def activation_estimator(
    name: str, options: Mapping[str, Mapping[str, float]] | None = None
) -> ActivationEstimator:
    """The estimator of activation ranges of that name, with its options set.

    Args:
        options: {estimator name: {option: value}}; options of other estimators are ignored.

    Raises:
        ConfigError: unknown name or option; the message lists the valid ones.
    """
    row = ESTIMATORS.get(name)
    if not isinstance(row, ActivationEstimator):
        raise ConfigError(_unknown(name, "activation", ActivationEstimator))
    return _with_options(row, options)


def weight_estimator(
    name: str, options: Mapping[str, Mapping[str, float]] | None = None
) -> WeightEstimator:
    """The estimator of weight scales of that name, with its options set.

    Raises:
        ConfigError: unknown name or option; the message lists the valid ones.
    """
    row = ESTIMATORS.get(name)
    if not isinstance(row, WeightEstimator):
        raise ConfigError(_unknown(name, "weight", WeightEstimator))
    return _with_options(row, options)


def estimator_names(role: type[Estimator]) -> list[str]:
    """Names of the rows that serve a role, `ActivationEstimator` or `WeightEstimator`."""
    return [name for name, row in ESTIMATORS.items() if isinstance(row, role)]


def _with_options(row: E, options: Mapping[str, Mapping[str, float]] | None) -> E:
    chosen = (options or {}).get(row.name, {})
    fields = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    unknown = sorted(set(chosen) - set(fields))
    if unknown:
        raise ConfigError(
            f"Estimator '{row.name}' has no option(s) {unknown}; it has {sorted(fields) or 'none'}."
        )
    values = {name: type(fields[name])(value) for name, value in chosen.items()}
    return dataclasses.replace(row, **values)


def _unknown(name: str, role: str, kind: type[Estimator]) -> str:
    what = "estimates no" if name in ESTIMATORS else "is no estimator of"
    return f"'{name}' {what} {role} ranges; valid names are {estimator_names(kind)}."


__all__ = [
    "ESTIMATORS",
    "AbsMax",
    "ActivationEstimator",
    "ErrorModel",
    "Estimator",
    "GlobalScale",
    "MeanSquaredError",
    "Range",
    "WeightEstimator",
    "activation_estimator",
    "ceil_power_of_two",
    "estimator_names",
    "grid_ends",
    "power_of_two_grid",
    "power_of_two_weight_scale",
    "scale_zero_point",
    "weight_estimator",
]
