"""`QuantizeConfig`: everything a user can choose, typed and checked once."""

from __future__ import annotations

import dataclasses
import fnmatch
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import yaml

from tvm_quant.errors import ConfigError
from tvm_quant.op import RequantizeMode


class BiasCorrection(str, Enum):
    """How the mean shift that quantized weights cause is removed."""

    NONE = "none"  # leave biases alone
    FAST = "fast"  # from the profiled means of each layer's input; no further run
    FULL = "full"  # layer by layer, measured on calibration samples: compiles the network twice


class WeightRounding(str, Enum):
    """How weights are rounded to their grid."""

    NEAREST = "nearest"  # each by itself
    ERROR_FEEDBACK = "error_feedback"  # each makes up for the errors of those before it (GPTQ)


class MergeRule(str, Enum):
    """How much the branches below a fork give up for a common quantizer."""

    NEVER = "never"  # every branch keeps its own
    SAME = "same"  # only branches that accept the same grids share one
    REQUANTIZE = "requantize"  # a grid above from which every branch takes or requantizes its own
    COMMON = "common"  # a grid that all branches accept, and no branch keeps its own


class BadData(str, Enum):
    """What to do with a calibration batch that holds NaN or Inf."""

    ERROR = "error"  # refuse, naming tensor and sample
    SKIP = "skip"  # leave the batch out, with a warning


class ZeroData(str, Enum):
    """What to do with a float input that is zero in every calibration sample."""

    ERROR = "error"  # refuse, naming the input
    WARN = "warn"  # go on, with a warning


@dataclass(frozen=True, kw_only=True)
class LayerConfig:
    """Settings of the layers that a pattern selects; None keeps the global setting."""

    nbit_activation: int | None = None
    nbit_weight: int | None = None
    activation_estimator: str | None = None
    weight_estimator: str | None = None
    per_channel: bool | None = None

    def __post_init__(self) -> None:
        _settle(self)


@dataclass(frozen=True, kw_only=True)
class QuantizeConfig:
    """How to quantize. Every field has a default that suits most networks.

    A pattern is the name of a node as the model file spells it, a shell pattern such as
    "layer1.*.conv?", or the name of a Relax op such as "relax.nn.conv2d". Each must match
    something.

    >>> QuantizeConfig(activation_estimator="mse", skip=("head.*",)).skip
    ('head.*',)
    """

    #: Hardware row (see `tvm_quant.hardware.HARDWARE`): decides grids, accumulator and requantize
    #: mode. `tvm-quant doctor` names the one with which this machine is fastest.
    hardware: str = "x86_vnni"
    #: Bits of graph inputs, 2 to 16.
    nbit_input: int = 8
    #: Bits of activations, 2 to 16.
    nbit_activation: int = 8
    #: Bits of weights, 2 to 8.
    nbit_weight: int = 8
    #: See `MergeRule`.
    merge_branches: MergeRule = MergeRule.COMMON
    #: Range estimator of activations (see `tvm_quant.estimator.ESTIMATORS`).
    activation_estimator: str = "robust"
    #: Scale estimator of weights. None chooses by bits: "max" above 4; up to 4 the scales with
    #: which each output errs the least or, where weights are rounded to nearest, "mse".
    weight_estimator: str | None = None
    #: Options of the estimators by name, such as {"percentile": {"percentile": 99.9}}.
    estimator_options: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    #: One weight scale per output channel instead of one per tensor.
    per_channel: bool = True
    #: Activation grids around zero; None lets the hardware row decide. `PRESETS` has names.
    symmetric_activations: bool | None = None
    #: Assumed absolute maximum of every activation without a dataset.
    global_scale: float = 8.0
    #: Every scale is a power of two: of the two next to what an estimator found, the one with the
    #: smaller squared error. None lets the hardware row decide.
    power_of_two_scales: bool | None = None
    #: Requantize mode; None lets the hardware row decide.
    requantize: RequantizeMode | None = None
    #: See `BiasCorrection`.
    bias_correction: BiasCorrection = BiasCorrection.FAST
    #: Samples that full bias correction measures on, >= 1; fewer where their tensors between two
    #: layers would fill more than 256 MiB.
    bias_samples: int = 64
    #: See `WeightRounding`. Without a data set, weights are rounded to nearest.
    weight_rounding: WeightRounding = WeightRounding.ERROR_FEEDBACK
    #: Fold per-channel activation scales into the next weights where branches differ in range.
    match_channel_scales: bool = True
    #: Cross-layer equalization of weights before calibration (Nagel et al., arXiv:1906.04721).
    equalize: bool = False
    #: Nodes that stay in float: patterns.
    skip: tuple[str, ...] = ()
    #: Convolutions that stay in float, by their index in execution order.
    skip_conv_layers: tuple[int, ...] = ()
    #: Leave dense layers (matmul with a constant) in float.
    skip_dense_layer: bool = False
    #: If given, only these ops or nodes are quantized: patterns.
    only: tuple[str, ...] | None = None
    #: Settings per pattern; of several matching ones the last wins.
    overrides: Mapping[str, LayerConfig] = field(default_factory=dict)
    #: Stop before integers: float arithmetic with `simulated_quantize`, for debugging.
    simulate: bool = False
    #: Calibration samples to use at most; None uses all.
    max_samples: int | None = None
    #: Calibration batches per profiling task; bits of the result depend on it, not on the workers.
    profile_chunk: int = 8
    #: See `BadData`.
    on_bad: BadData = BadData.ERROR
    #: See `ZeroData`.
    on_zero: ZeroData = ZeroData.ERROR

    def __post_init__(self) -> None:
        _settle(self)
        if any(index < 0 for index in self.skip_conv_layers):
            raise ConfigError(
                f"skip_conv_layers is {self.skip_conv_layers}; "
                "indices count from 0 and are not negative."
            )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> QuantizeConfig:
        """Build from plain values, as a YAML file holds them.

        Raises:
            ConfigError: unknown field, wrong type, or value outside its range.
        """
        return typing.cast(QuantizeConfig, _build(cls, values, "config"))

    def to_dict(self) -> dict[str, Any]:
        """Plain values; inverse of `from_dict`."""
        return typing.cast(dict[str, Any], _plain(dataclasses.asdict(self)))

    @classmethod
    def load(cls, path: str | Path) -> QuantizeConfig:
        """Read a YAML file.

        Raises:
            ConfigError: the file is missing, no YAML mapping, or holds bad values.
        """
        try:
            values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"Cannot read config '{path}': {error.strerror}.") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigError(f"Config '{path}' is no YAML: {error}") from error
        if values is None:
            return cls()
        if not isinstance(values, dict):
            raise ConfigError(
                f"Config '{path}' holds a {type(values).__name__}; expected `field: value` lines."
            )
        return cls.from_dict(values)

    def dump(self) -> str:
        """The YAML text of this config."""
        return yaml.safe_dump(self.to_dict(), sort_keys=False)


#: Fields that go together, by the names that NNCF gives them.
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "performance": {"symmetric_activations": True},  # zero points of 0: the cheapest kernels
    "mixed": {"symmetric_activations": False},  # every code is used; weights stay symmetric
}


def matches(pattern: str, *names: str) -> bool:
    """Whether a pattern selects a node of these names (node name, op name).

    >>> matches("layer1.*", "layer1.0.conv1", "relax.nn.conv2d")
    True
    """
    return any(name == pattern or fnmatch.fnmatchcase(name, pattern) for name in names)


_RANGES: tuple[tuple[str, float, float], ...] = (
    ("nbit_input", 2, 16),
    ("nbit_activation", 2, 16),
    ("nbit_weight", 2, 8),
    ("global_scale", 1e-30, 1e30),
    ("bias_samples", 1, 1_000_000),
    ("max_samples", 1, 1_000_000_000),
    ("profile_chunk", 1, 1_000_000),
)


def _settle(config: Any) -> None:
    """Bring each field to its type (names to enums, lists to tuples) and check its range."""
    hints = typing.get_type_hints(type(config))
    for name, hint in hints.items():
        object.__setattr__(config, name, _convert(hint, getattr(config, name), name))
    for name, low, high in _RANGES:
        value = getattr(config, name, None)
        if value is not None and not low <= value <= high:
            raise ConfigError(f"{name} is {value!r}; expected {low:g} to {high:g}.")


def _build(cls: type[Any], values: Mapping[str, Any], where: str) -> Any:
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where} is {values!r}; expected a mapping.")
    fields = {f.name: f for f in dataclasses.fields(cls)}
    unknown = sorted(set(values) - set(fields))
    if unknown:
        raise ConfigError(
            f"{where}: unknown field(s) {unknown}; valid fields are {sorted(fields)}."
        )
    return cls(**values)


def _convert(hint: Any, value: Any, name: str) -> Any:
    options = typing.get_args(hint)
    if type(None) in options:
        if value is None:
            return None
        (hint,) = (option for option in options if option is not type(None))
        return _convert(hint, value, name)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _convert_enum(hint, value, name)
    origin = typing.get_origin(hint)
    if origin is tuple:
        if isinstance(value, str) or not isinstance(value, list | tuple):
            raise ConfigError(f"{name} is {value!r}; expected a list.")
        return tuple(_convert(typing.get_args(hint)[0], item, name) for item in value)
    if origin is not None:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{name} is {value!r}; expected a mapping.")
        return {
            str(key): _convert(typing.get_args(hint)[1], item, f"{name}.{key}")
            for key, item in value.items()
        }
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return value if isinstance(value, hint) else _build(hint, value, name)
    return _convert_scalar(hint, value, name)


def _convert_enum(hint: type[Enum], value: Any, name: str) -> Enum:
    try:
        return hint(value)
    except ValueError:
        raise ConfigError(
            f"{name} is {value!r}; expected one of {[m.value for m in hint]}."
        ) from None


def _convert_scalar(hint: type[Any], value: Any, name: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise ConfigError(f"{name} is {value!r}; expected {hint.__name__}.")
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
