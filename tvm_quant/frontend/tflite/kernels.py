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
_WIDE = _contractions(Convention.INT16, Convention.INT16)


@dataclass(frozen=True, kw_only=True)
class KernelSet:
    """One set of kernels.

    Attributes:
        name: as the user writes it.
        oracle: how the TensorFlow Lite runtime is started with them.
        common: convention of operators that the others do not name.
        conventions: by operator code.
        of_type: the same for results of one type, which goes first.
        rounding, formula: from a real number to a code.
    """

    name: str
    oracle: str
    common: Convention
    conventions: Mapping[str, Convention]
    of_type: Mapping[str, Mapping[str, Convention]]
    rounding: Rounding = Rounding.HALF_UP
    formula: Formula = Formula.DIVIDE

    def convention(self, code: str, dtype: str) -> Convention:
        """Of an operator with a result of this type.

        >>> KERNEL_SETS["builtin"].convention("CONV_2D", "int8").value
        'ruy'
        """
        known = {**self.conventions, **self.of_type.get(dtype, {})}
        return known.get(code, self.common)


_ROWS = (
    KernelSet(
        name="xnnpack",
        oracle="as it is: the XNNPACK delegate",
        common=Convention.XNNPACK,
        conventions={"AVERAGE_POOL_2D": _REFERENCE},
        of_type={"int16": {**dict.fromkeys(("ADD", "SUB", "MUL", "MEAN"), _REFERENCE), **_WIDE}},
    ),
    KernelSet(
        name="builtin",
        oracle="OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES",
        common=_REFERENCE,
        conventions=_contractions(Convention.RUY, Convention.RUY_SHORT),
        of_type={
            "int16": _WIDE,
            "uint8": _contractions(Convention.RUY_SHORT, Convention.RUY_SHORT),
        },
    ),
    KernelSet(
        name="reference",
        oracle="OpResolverType.BUILTIN_REF; close to TensorFlow Lite for Microcontrollers",
        common=_REFERENCE,
        conventions={"FULLY_CONNECTED": Convention.HALF_UP},
        of_type={
            "int16": _WIDE,
            "uint8": _contractions(
                Convention.DOUBLE_ROUNDING_SHORT, Convention.DOUBLE_ROUNDING_SHORT
            ),
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
