"""Configurations by name: an estimator, and fields that differ from the default.

>>> config_of("mse+per_channel=false").per_channel
False
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import yaml

from tvm_quant.config import QuantizeConfig
from tvm_quant.errors import ConfigError
from tvm_quant.estimator import ActivationEstimator, estimator_names

DEFAULT = "default"
SHORT = {"kl": "kl_divergence"}

#: What `table` compares.
TABLE_ESTIMATORS = ("minmax", "percentile", "kl_divergence", "mse", "robust")
TABLE_BIAS = ("none", "fast", "full")
TABLE = tuple(
    f"{estimator}+bias_correction={bias}+per_channel={per_channel}"
    for estimator, bias, per_channel in itertools.product(
        TABLE_ESTIMATORS, TABLE_BIAS, ("true", "false")
    )
)


def config_of(name: str, base: Mapping[str, Any] | None = None) -> QuantizeConfig:
    """The configuration that a name spells: parts joined by `+`.

    Args:
        name: each part is "default", an estimator of activations, or `field=value` with a field of
            `QuantizeConfig`.
        base: fields that a network needs; the name may override them.

    Raises:
        ConfigError: an unknown part, or a value that a field cannot have.
    """
    fields = dict(base or {})
    for part in name.split("+"):
        fields |= _fields(part, name)
    return QuantizeConfig.from_dict(fields)


def _fields(part: str, name: str) -> dict[str, Any]:
    if part == DEFAULT:
        return {}
    key, equals, value = part.partition("=")
    if equals:
        return {key: yaml.safe_load(value)}
    estimators = estimator_names(ActivationEstimator)
    if SHORT.get(part, part) in estimators:
        return {"activation_estimator": SHORT.get(part, part)}
    raise ConfigError(
        f"configuration '{name}': '{part}' is neither '{DEFAULT}', FIELD=VALUE, nor one of the "
        f"estimators {', '.join(estimators)}"
    )
