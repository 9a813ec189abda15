"""`relay.quantize`: `qconfig`, `current_qconfig`, `quantize`, and its stages as passes.

One set of defaults holds inside and outside a `with qconfig()`. The old stack had two: there,
without a block, no convolution was skipped.
"""

from __future__ import annotations

import contextvars
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Any

import tvm
from tvm import IRModule

import tvm_quant
from tvm_quant.config import QuantizeConfig
from tvm_quant.dataset import as_dataset
from tvm_quant.errors import ConfigError
from tvm_quant.estimator import ActivationEstimator, WeightEstimator, estimator_names
from tvm_quant.ir import bindings, op_name
from tvm_quant.ir.signature import main_function
from tvm_quant.quantize import data_inputs, pipeline
from tvm_quant.statistics import Statistics
from tvm_quant.transform import SplitConversions
from tvm_relay.expr import as_array
from tvm_relay.to_relax import to_relax

#: Value of `calibrate_mode`: estimator of activation ranges.
_ESTIMATORS = {
    **{name: name for name in estimator_names(ActivationEstimator)},
    "kl_divergence": "kl_symmetric",  # its thresholds were these
    "kl": "kl_divergence",
}
_WEIGHT_SCALES = estimator_names(WeightEstimator)
#: Operators of which Relax has another name than Relay.
_RELAX_NAMES = {
    "concatenate": "relax.concat",
    "nn.batch_matmul": "relax.matmul",
    "nn.dense": "relax.matmul",
    "nn.global_avg_pool2d": "relax.nn.adaptive_avg_pool2d",
    "nn.leaky_relu": "relax.nn.leakyrelu",
}
_ROUNDINGS = ("UPWARD", "TONEAREST")
#: What `partition_conversions` adds behind `Realize`.
_PARTITIONS: Mapping[str, Sequence[tvm.transform.Pass]] = {
    "disabled": (),
    "enabled": (SplitConversions(),),
    "fully_integral": (SplitConversions(integral=True),),
}
#: Activations of either sign are the generic row; unsigned ones with a zero point the x86 row.
_HARDWARE = {"int8": "generic", "int16": "generic", "uint8": "x86_vnni"}


@dataclass(frozen=True, kw_only=True)
class QConfig:
    """The fields of Relay's `qconfig`, with its documented defaults, checked.

    Attributes:
        nbit_input, nbit_weight: bits of activations (Relay's INPUT kind), which are stored in 16
            where they are more than 8, and of weights.
        nbit_activation: bits of the accumulator; 32.
        dtype_input: storage of activations: int8, uint8 or int16.
        dtype_weight: storage of weights; int8.
        dtype_activation: of the accumulator; int32.
        calibrate_mode: global_scale, kl_divergence (the estimator `kl_symmetric`), percentile, or
            any other estimator of activation ranges (`tvm_quant.estimator.ESTIMATORS`), such as
            mse; the estimator that is called kl_divergence there is kl here.
        global_scale: assumed absolute maximum in the mode of that name.
        weight_scale: power2, max, or any other estimator of weight scales, such as mse.
        skip_dense_layer: leave dense layers in float.
        skip_conv_layers: indices of convolutions to leave in float; None is none.
        do_simulation: stop before integers.
        round_for_shift: always on here: without it every layer loses half a step.
        debug_enabled_ops: quantize only these operators, in Relay's or Relax's spelling; None is
            all, and [] none.
        rounding: accepted; requantization rounds to nearest, ties to even.
        calibrate_chunk_by: accepted; calibration memory is bounded without it.
        partition_conversions: "enabled" gives the module functions `quantize_inputs`,
            `quantized_main` and `dequantize_outputs`, which `main` chains; "fully_integral" refuses
            a network that has more than integers between the conversions. See
            `tvm_quant.transform.SplitConversions`.
        more: fields of `QuantizeConfig` that Relay did not have, such as per_channel,
            symmetric_activations or bias_correction; `qconfig` takes them as keywords.

    Source: the documentation of `tvm.relay.quantize.qconfig`, TVM 0.19.
    """

    nbit_input: int = 8
    nbit_weight: int = 8
    nbit_activation: int = 32
    dtype_input: str = "int8"
    dtype_weight: str = "int8"
    dtype_activation: str = "int32"
    calibrate_mode: str = "global_scale"
    global_scale: float = 8.0
    weight_scale: str = "power2"
    skip_dense_layer: bool = True
    skip_conv_layers: Sequence[int] | None = (0,)
    do_simulation: bool = False
    round_for_shift: bool = True
    debug_enabled_ops: Sequence[str] | None = None
    rounding: str = "UPWARD"
    calibrate_chunk_by: int = -1
    partition_conversions: str = "disabled"
    more: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_choice("calibrate_mode", self.calibrate_mode, _ESTIMATORS)
        _check_choice("weight_scale", self.weight_scale, _WEIGHT_SCALES)
        _check_choice("dtype_input", self.dtype_input, _HARDWARE)
        _check_choice("dtype_weight", self.dtype_weight, ("int8",))
        _check_choice("dtype_activation", self.dtype_activation, ("int32",))
        _check_choice("rounding", self.rounding, _ROUNDINGS)
        _check_choice("partition_conversions", self.partition_conversions, _PARTITIONS)
        if self.nbit_activation != 32:
            raise ConfigError(
                f"nbit_activation is {self.nbit_activation}; expected 32: "
                "sums are exact in 32 bits."
            )
        if not self.round_for_shift:
            raise ConfigError(
                "round_for_shift=False is not supported: it adds half a step per layer."
            )
        if self.do_simulation and self.partition_conversions == "fully_integral":
            raise ConfigError(
                "do_simulation=True stops before integers; partition_conversions='fully_integral' "
                "wants nothing else. Choose one of them."
            )
        self.to_config()

    def to_config(self) -> QuantizeConfig:
        """The `QuantizeConfig` that means the same."""
        wide = self.dtype_input == "int16"
        config = QuantizeConfig(
            hardware=_HARDWARE[self.dtype_input],
            nbit_input=16 if wide and self.nbit_input == 8 else self.nbit_input,
            nbit_activation=16 if wide and self.nbit_input == 8 else self.nbit_input,
            nbit_weight=self.nbit_weight,
            activation_estimator=_ESTIMATORS[self.calibrate_mode],
            global_scale=self.global_scale,
            weight_estimator=self.weight_scale,
            skip_dense_layer=self.skip_dense_layer,
            skip_conv_layers=tuple(self.skip_conv_layers or ()),
            only=self._only(),
            simulate=self.do_simulation,
        )
        return replace(config, **self.more)

    def _only(self) -> tuple[str, ...] | None:
        if self.debug_enabled_ops is None:
            return None
        return tuple(_relax_name(name) for name in self.debug_enabled_ops)


def _check_choice(name: str, value: str, choices: Collection[str]) -> None:
    if value not in choices:
        raise ConfigError(f"{name} is {value!r}; expected one of {sorted(choices)}.")


_DEFAULT = QConfig()
_CURRENT: contextvars.ContextVar[QConfig | None] = contextvars.ContextVar("qconfig", default=None)


@contextmanager
def qconfig(**settings: Any) -> Iterator[QConfig]:
    """Settings for the `quantize` calls in the block; blocks nest.

    Raises:
        ConfigError: an unknown field or a bad value; Relay ignored both.

    >>> with qconfig(skip_conv_layers=[0], weight_scale="max") as config:
    ...     config.to_config().weight_estimator
    'max'
    """
    known = {row.name for row in fields(QConfig)} - {"more"}
    new = {row.name for row in fields(QuantizeConfig)} - known
    unknown = sorted(set(settings) - known - new)
    if unknown:
        raise ConfigError(
            f"qconfig: unknown field(s) {unknown}; valid fields are {sorted(known)}, and of "
            f"QuantizeConfig {sorted(new)}."
        )
    more = {name: value for name, value in settings.items() if name in new}
    config = QConfig(**{k: v for k, v in settings.items() if k in known}, more=more)
    token = _CURRENT.set(config)
    try:
        yield config
    finally:
        _CURRENT.reset(token)


def current_qconfig() -> QConfig:
    """The settings in force: those of the innermost block, or the defaults."""
    return _CURRENT.get() or _DEFAULT


class QAnnotateKind(IntEnum):
    """What a tensor is to the operator that reads it."""

    IDENTITY = 0  # profiled only
    INPUT = 1
    WEIGHT = 2
    ACTIVATION = 3


def kind2str(kind: int) -> str:
    """The name of a kind in small letters.

    >>> kind2str(QAnnotateKind.WEIGHT)
    'weight'
    """
    return QAnnotateKind(kind).name.lower()


def quantize(mod: Any, params: Mapping[str, Any] | None = None, dataset: Any = None) -> IRModule:
    """Quantize a network with the settings of the innermost `qconfig`.

    Args:
        mod: a Relay function or module, or a Relax module as `tvm_quant.load` returns it. It is not
            changed.
        params: weights that are inputs of `main`.
        dataset: iterable of {input name: array}, or anything else `tvm_quant.quantize` takes.

    Returns:
        A module whose `main` has the inputs and outputs of the network; with
        `partition_conversions`, it chains three more functions.

    Raises:
        ConfigError: the mode needs a dataset and there is none; the network is not to be made
            fully integral.
    """
    source = to_relax(mod)
    config = _settings(source)
    data = _data(config, dataset)
    return _partition(tvm_quant.quantize(source, _arrays(params, source), data, config))


def prerequisite_optimize(mod: Any, params: Mapping[str, Any] | None = None) -> IRModule:
    """Bind parameters and bring the network to the form that is annotated; a new module."""
    source = to_relax(mod)
    steps = _stage("prepare", QuantizeConfig(), _arrays(params, source))
    return tvm.transform.Sequential(steps)(source)


def annotate() -> tvm.transform.Pass:
    """The pass that places quantizers without scales; the network computes what it did."""
    return _Stage("annotate")


def calibrate(dataset: Any = None) -> tvm.transform.Pass:
    """The pass that gives quantizers their scales; needs `annotate`."""
    return _Stage("calibrate", dataset)


def realize() -> tvm.transform.Pass:
    """The pass that makes integers, apart from conversions if asked to; needs `calibrate`."""
    return _Stage("realize")


def partition() -> tvm.transform.Pass:
    """The module as it is: `annotate` places quantizers where low-bit storage pays."""
    return _Stage("partition")


def collect_stats(mod: Any, dataset: Any, chunk_by: int = -1) -> Statistics:
    """Statistics of the operand of each quantizer of an annotated network.

    Args:
        mod: as `annotate` leaves it.
        dataset: as for `quantize`; read once.
        chunk_by: accepted; memory is bounded without it.
    """
    source, statistics = to_relax(mod), Statistics()
    config = replace(current_qconfig(), calibrate_mode="minmax").to_config()
    data = as_dataset(dataset, data_inputs(source, None))
    profile = [
        step
        for step in pipeline(config, None, data, statistics=statistics)
        if step.info.name == "Profile"
    ]
    tvm.transform.Sequential(profile)(source)
    return statistics


#: The first and last pass of `tvm_quant.quantize` that belong to each stage.
_STAGES = {
    "partition": (None, None),
    "prepare": ("Prepare", "Prepare"),
    "annotate": ("Equalize", "Annotate"),
    "calibrate": ("CalibrateWeights", "RoundBias"),
    "realize": ("Realize", "Realize"),
}


@tvm.transform.module_pass(opt_level=0, name="QuantizeStage")
class _Stage:
    """A part of the pipeline, with the settings in force when it runs."""

    def __init__(self, name: str, dataset: Any = None):
        self.name, self.dataset = name, dataset

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        config = replace(_settings(mod), simulate=False)
        data = None
        if self.name == "calibrate":
            given = _data(config, self.dataset)
            data = None if given is None else as_dataset(given, data_inputs(mod, None))
        result = tvm.transform.Sequential(_stage(self.name, config, None, data))(mod)
        return _partition(result) if self.name == "realize" else result


def _partition(mod: IRModule) -> IRModule:
    """What `partition_conversions` asks for, on integers."""
    passes = _PARTITIONS[current_qconfig().partition_conversions]
    return tvm.transform.Sequential(list(passes))(mod)


def _stage(
    name: str, config: QuantizeConfig, params: Any = None, data: Any = None
) -> list[tvm.transform.Pass]:
    first, last = _STAGES[name]
    if first is None or last is None:
        return []
    steps = pipeline(config, params, data)
    names = [str(step.info.name) for step in steps]
    return steps[names.index(first) : names.index(last) + 1]


def _settings(mod: IRModule) -> QuantizeConfig:
    """The settings in force; the default skip of a first convolution asks for no convolution."""
    config = current_qconfig()
    if not _has_convolution(mod) and config.skip_conv_layers == _DEFAULT.skip_conv_layers:
        config = replace(config, skip_conv_layers=None)
    return config.to_config()


def _data(config: QuantizeConfig, dataset: Any) -> Any:
    if config.activation_estimator == "global_scale":
        return None
    if dataset is None:
        mode = current_qconfig().calibrate_mode
        raise ConfigError(
            f"calibrate_mode='{mode}' needs a dataset. Pass one, or use "
            "calibrate_mode='global_scale'."
        )
    return dataset


def _arrays(params: Mapping[str, Any] | None, mod: IRModule) -> dict[str, Any]:
    """Arrays of the parameters that are inputs; what the network does not read is left out."""
    names = {str(param.name) for param in main_function(mod).params}
    return {name: as_array(value) for name, value in (params or {}).items() if name in names}


def _relax_name(name: str) -> str:
    if name.startswith("relax."):
        return name
    return _RELAX_NAMES.get(name, f"relax.{name}")


def _has_convolution(mod: IRModule) -> bool:
    names = (op_name(binding.value) for binding in bindings(main_function(mod)))
    return any(name is not None and ".conv" in name for name in names)
