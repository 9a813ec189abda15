"""`relay.quantize`: `qconfig`, `current_qconfig` and `quantize` on Relax modules."""

from __future__ import annotations

import contextvars
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy.typing as npt
from tvm import IRModule

import tvm_quant
from tvm_quant.config import QuantizeConfig
from tvm_quant.errors import ConfigError, UnsupportedError
from tvm_quant.ir import bindings, op_name
from tvm_quant.ir.signature import main_function

_ESTIMATORS = {
    "global_scale": "global_scale",
    "kl_divergence": "kl_divergence",
    "percentile": "percentile",
}
_WEIGHT_SCALES = {"power2": "power2", "max": "max"}
_ROUNDINGS = ("UPWARD", "TONEAREST")
#: Activations of either sign are the generic row; unsigned ones with a zero point the x86 row.
_HARDWARE = {"int8": "generic", "int16": "generic", "uint8": "x86_vnni"}


@dataclass(frozen=True, kw_only=True)
class QConfig:
    """The fields of Relay's `qconfig`, with its documented defaults, checked.

    Attributes:
        nbit_input, nbit_weight: bits of activations (Relay's INPUT kind) and of weights.
        nbit_activation: bits of the accumulator; 32.
        dtype_input: storage of activations: int8, uint8 or int16.
        dtype_weight: storage of weights; int8.
        dtype_activation: of the accumulator; int32.
        calibrate_mode: global_scale, kl_divergence or percentile.
        global_scale: assumed absolute maximum in the mode of that name.
        weight_scale: power2 or max.
        skip_dense_layer: leave dense layers in float.
        skip_conv_layers: indices of convolutions to leave in float; None is none.
        do_simulation: stop before integers.
        round_for_shift: always on here: without it every layer loses half a step.
        debug_enabled_ops: quantize only these operators, in Relax spelling; None is all.
        rounding: accepted; requantization rounds to nearest, ties to even.
        calibrate_chunk_by: accepted; calibration memory is bounded without it.
        partition_conversions: only "disabled".

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

    def __post_init__(self) -> None:
        _check_choice("calibrate_mode", self.calibrate_mode, _ESTIMATORS)
        _check_choice("weight_scale", self.weight_scale, _WEIGHT_SCALES)
        _check_choice("dtype_input", self.dtype_input, _HARDWARE)
        _check_choice("dtype_weight", self.dtype_weight, ("int8",))
        _check_choice("dtype_activation", self.dtype_activation, ("int32",))
        _check_choice("rounding", self.rounding, _ROUNDINGS)
        _check_choice(
            "partition_conversions",
            self.partition_conversions,
            ("disabled", "enabled", "fully_integral"),
        )
        if self.nbit_activation != 32:
            raise ConfigError(
                f"nbit_activation is {self.nbit_activation}; expected 32: "
                "sums are exact in 32 bits."
            )
        if not self.round_for_shift:
            raise ConfigError(
                "round_for_shift=False is not supported: it adds half a step per layer."
            )
        if self.partition_conversions != "disabled":
            raise UnsupportedError(
                f"partition_conversions='{self.partition_conversions}' is not supported; "
                "the inputs and outputs of the result are float. Use 'disabled'."
            )
        self.to_config()

    def to_config(self) -> QuantizeConfig:
        """The `QuantizeConfig` that means the same."""
        wide = self.dtype_input == "int16"
        return QuantizeConfig(
            hardware=_HARDWARE[self.dtype_input],
            nbit_input=16 if wide and self.nbit_input == 8 else self.nbit_input,
            nbit_activation=16 if wide and self.nbit_input == 8 else self.nbit_input,
            nbit_weight=self.nbit_weight,
            activation_estimator=_ESTIMATORS[self.calibrate_mode],
            global_scale=self.global_scale,
            weight_estimator=_WEIGHT_SCALES[self.weight_scale],
            skip_dense_layer=self.skip_dense_layer,
            skip_conv_layers=tuple(self.skip_conv_layers or ()),
            only=None if self.debug_enabled_ops is None else tuple(self.debug_enabled_ops),
            simulate=self.do_simulation,
        )


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
    known = {field.name for field in fields(QConfig)}
    unknown = sorted(set(settings) - known)
    if unknown:
        raise ConfigError(f"qconfig: unknown field(s) {unknown}; valid fields are {sorted(known)}.")
    config = QConfig(**settings)
    token = _CURRENT.set(config)
    try:
        yield config
    finally:
        _CURRENT.reset(token)


def current_qconfig() -> QConfig:
    """The settings in force: those of the innermost block, or the defaults."""
    return _CURRENT.get() or _DEFAULT


def quantize(
    mod: IRModule,
    params: Mapping[str, npt.NDArray[Any]] | None = None,
    dataset: Any = None,
) -> IRModule:
    """Quantize a Relax module with the settings of the innermost `qconfig`.

    Args:
        mod: as `tvm_quant.load` returns it. It is not changed.
        params: weights that are inputs of `main`.
        dataset: iterable of {input name: array}, or anything else `tvm_quant.quantize` takes.

    Raises:
        ConfigError: the mode needs a dataset and there is none.
    """
    config = current_qconfig()
    if dataset is None and config.calibrate_mode != "global_scale":
        raise ConfigError(
            f"calibrate_mode='{config.calibrate_mode}' needs a dataset. Pass one, or use "
            "calibrate_mode='global_scale'."
        )
    if not _has_convolution(mod) and config.skip_conv_layers == _DEFAULT.skip_conv_layers:
        config = replace(config, skip_conv_layers=None)
    data = None if config.calibrate_mode == "global_scale" else dataset
    return tvm_quant.quantize(mod, params, data, config.to_config())


def _has_convolution(mod: IRModule) -> bool:
    names = (op_name(binding.value) for binding in bindings(main_function(mod)))
    return any(name is not None and ".conv" in name for name in names)
