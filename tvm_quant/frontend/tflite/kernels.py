"""`KERNEL_SETS`: whose integers a quantized network is to give.

TensorFlow Lite has no one answer: its kernels for one operator round differently, and a network
gives what the kernels compute that the runtime was started with. A row says which convention each
operator follows there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tvm_quant.errors import ConfigError
from tvm_quant.op import Convention, Formula, Rounding

#: Kernels that the fast libraries lack are those of the reference, and these share its arithmetic.
_REFERENCE = Convention.DOUBLE_ROUNDING

_CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV")


def _contractions(convolution: Convention, fully_connected: Convention) -> dict[str, Convention]:
    return {**dict.fromkeys(_CONVOLUTIONS, convolution), "FULLY_CONNECTED": fully_connected}


#: 16-bit data with 8-bit weights: the same in every set.
_WIDE = _contractions(Convention.INT16, Convention.HALF_AWAY)


@dataclass(frozen=True, kw_only=True)
class KernelSet:
    """One set of kernels.

    Attributes:
        name: as the user writes it.
        oracle: how the TensorFlow Lite runtime is started with them.
        common: convention of operators that the others do not name.
        conventions: by operator code.
        of_type: the same for results of one type, which goes first.
        of_floats: rounding and formula of QUANTIZE for a tensor in float. Other operators that
            compute in float round ties away from zero.
    """

    name: str
    oracle: str
    common: Convention
    conventions: Mapping[str, Convention]
    of_type: Mapping[str, Mapping[str, Convention]]
    of_floats: tuple[Rounding, Formula]

    def to_codes(self, code: str) -> tuple[Rounding, Formula]:
        """Rounding and formula of an operator that gives codes of real values."""
        return self.of_floats if code == "QUANTIZE" else (Rounding.HALF_UP, Formula.DIVIDE)

    def convention(self, code: str, dtype: str) -> Convention:
        """Of an operator with a result of this type.

        >>> KERNEL_SETS["builtin"].convention("CONV_2D", "int8").value
        'ruy'
        """
        if dtype == "int16":
            return _WIDE.get(code, _REFERENCE)
        known = {**self.conventions, **self.of_type.get(dtype, {})}
        return known.get(code, self.common)


_ROWS = (
    KernelSet(
        name="xnnpack",
        oracle="as it is: the XNNPACK delegate",
        common=Convention.XNNPACK,
        of_floats=(Rounding.HALF_EVEN, Formula.RECIPROCAL),
        conventions={"AVERAGE_POOL_2D": _REFERENCE},
        of_type={},
    ),
    KernelSet(
        name="builtin",
        oracle="OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES",
        common=_REFERENCE,
        of_floats=(Rounding.HALF_EVEN, Formula.RECIPROCAL),
        conventions={
            **_contractions(Convention.RUY, Convention.RUY_SHORT),
            "MEAN": Convention.RUY,
            "TRANSPOSE_CONV": _REFERENCE,
        },
        of_type={
            "uint8": {
                **_contractions(Convention.RUY_SHORT, Convention.RUY_SHORT),
                "DEPTHWISE_CONV_2D": Convention.DOUBLE_ROUNDING_SHORT,
            },
        },
    ),
    KernelSet(
        name="reference",
        oracle="OpResolverType.BUILTIN_REF; close to TensorFlow Lite for Microcontrollers",
        common=_REFERENCE,
        of_floats=(Rounding.HALF_UP, Formula.DIVIDE),
        conventions={"FULLY_CONNECTED": Convention.HALF_AWAY},
        of_type={
            "uint8": _contractions(Convention.DOUBLE_ROUNDING_SHORT, Convention.HALF_AWAY),
        },
    ),
)
KERNEL_SETS: dict[str, KernelSet] = {row.name: row for row in _ROWS}
DEFAULT = "xnnpack"


def kernel_set(name: str | None) -> KernelSet:
    """The row of a name; None is the default.

    Raises:
        ConfigError: no such row.
    """
    row = KERNEL_SETS.get(DEFAULT if name is None else name)
    if row is None:
        raise ConfigError(f"rounding is '{name}'; expected one of {', '.join(KERNEL_SETS)}.")
    return row
