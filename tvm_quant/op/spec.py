"""What a quantizer maps to: the integer grid (`QuantSpec`) and its role (`Kind`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from tvm_quant.errors import ConfigError
from tvm_quant.op.rounding import Rounding

STORAGE_BITS = (8, 16, 32)
MAX_BITS = 32


class Kind(str, Enum):
    """The role of a quantized tensor."""

    INPUT = "input"  # a graph input: its scale may be given by the user's data format
    WEIGHT = "weight"  # a constant: calibrated from its own values
    ACTIVATION = "activation"  # computed at run time: calibrated from a dataset
    BIAS = "bias"  # a constant at the accumulator's scale


class Convention(str, Enum):
    """How integers are scaled to the codes of a quantizer.

    Integers that another tool computes with differ in the last step, by what its kernels do; a
    model that was quantized elsewhere names the tool it wants to agree with.
    """

    BACKEND = "backend"  # as the hardware row requantizes
    NEAREST = "nearest"  # float32 sums in any order: constants to the last bit, no proof
    EXACT = "exact"  # the codes of real arithmetic, proven for every sum that can occur
    FLOAT32 = "float32"  # oneDNN, and so MXNet: a float32 multiplier, ties to even
    ONNXRUNTIME = "onnxruntime"  # as FLOAT32, and sums and products of two tensors in float32
    DOUBLE_ROUNDING = "double_rounding"  # gemmlowp, TFLite's reference: Q31, ties away from zero
    RUY = "ruy"  # ruy, TFLite's builtin kernels: Q31, ties up
    HALF_UP = "half_up"  # Q31 in one rounding, ties up
    HALF_AWAY = "half_away"  # the same with ties away from zero: TFLite's reference matrix product
    DOUBLE_ROUNDING_SHORT = "double_rounding_short"  # the scales' product rounded to float32
    RUY_SHORT = "ruy_short"  # likewise
    XNNPACK = "xnnpack"  # as FLOAT32, and sums of two tensors in fixed point
    INT16 = "int16"  # TFLite's 16-bit data with 8-bit weights: Q15 in one rounding, ties up


class Formula(str, Enum):
    """The float32 arithmetic from a real number to a code, before the clamp."""

    DIVIDE = "divide"  # round(x / scale) + zero_point: ONNX, TFLite
    SHIFT = "shift"  # round(x / scale + zero_point): QONNX
    RECIPROCAL = "reciprocal"  # round(x * (1 / scale)) + zero_point: PyTorch


@dataclass(frozen=True, kw_only=True)
class QuantSpec:
    """An integer grid: `real = scale * (q - zero_point)` with q in [qmin, qmax].

    Attributes:
        bits: width of q, 1 to 32. Values below 8 are stored in 8-bit containers.
        signed: whether q is two's complement.
        narrow: drop the lowest code of a signed grid (-127..127), so that -q always exists.
        symmetric: the zero point is fixed (0 if signed; 0 as well if unsigned, for data >= 0).
        axis: channel axis with one scale per channel; None is one scale per tensor.
        groups: blocks along axis 0 whose channels have scales of their own. 1 but for the weights
            of grouped transposed convolutions, (I, O/groups, ...): there channel g * O/groups + o
            is the slice [block g, o], and the scale has shape (I, O/groups, 1, ...).
        low, high: smallest and largest code, where they are not those of bits, sign and narrow
            range; within what `dtype` stores.
        rounding: what becomes of fractions.
        formula: the arithmetic before the clamp.
        reciprocal: for the formula of that name, 1 / scale where it is not that of the float32
            scale: PyTorch has it of a float64.

    Source: the grid of Jacob et al., CVPR 2018, arXiv:1712.05877, eq. 1; narrow range as in
    Krishnamoorthi, arXiv:1806.08342, section 2.

    >>> QuantSpec(bits=8, signed=True, narrow=True).qmin
    -127
    """

    bits: int = 8
    signed: bool = True
    narrow: bool = False
    symmetric: bool = True
    axis: int | None = None
    groups: int = 1
    low: int | None = None
    high: int | None = None
    rounding: Rounding = Rounding.HALF_EVEN
    formula: Formula = Formula.DIVIDE
    reciprocal: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= MAX_BITS:
            raise ConfigError(f"QuantSpec.bits is {self.bits}; expected 1 to {MAX_BITS}.")
        if self.narrow and not self.signed:
            raise ConfigError("QuantSpec: a narrow range only exists for signed grids.")
        if self.narrow and self.bits == 1:
            raise ConfigError("QuantSpec: a 1-bit grid has no code to drop for a narrow range.")
        if not self._stored_min <= self.qmin <= self.qmax <= self._stored_max:
            raise ConfigError(
                f"QuantSpec: codes from {self.qmin} to {self.qmax} do not fit into {self.dtype}."
            )

    @property
    def qmin(self) -> int:
        """Smallest code."""
        if self.low is not None:
            return self.low
        return -(1 << (self.bits - 1)) + int(self.narrow) if self.signed else 0

    @property
    def qmax(self) -> int:
        """Largest code."""
        if self.high is not None:
            return self.high
        return (1 << (self.bits - 1)) - 1 if self.signed else (1 << self.bits) - 1

    @property
    def levels(self) -> int:
        """Number of codes."""
        return self.qmax - self.qmin + 1

    @property
    def dtype(self) -> str:
        """The smallest integer dtype that stores q."""
        width = next(width for width in STORAGE_BITS if self.bits <= width)
        return f"{'' if self.signed else 'u'}int{width}"

    @property
    def _stored_min(self) -> int:
        return int(np.iinfo(self.dtype).min)

    @property
    def _stored_max(self) -> int:
        return int(np.iinfo(self.dtype).max)

    def per_tensor(self) -> QuantSpec:
        """The same grid with one scale."""
        return replace(self, axis=None, groups=1)

    def to_attrs(self) -> dict[str, int | float | str]:
        """Plain values, as stored in the attributes of an IR call; what few grids have, if set."""
        rare = {
            "low": self.low,
            "high": self.high,
            "rounding": None if self.rounding is Rounding.HALF_EVEN else self.rounding.value,
            "formula": None if self.formula is Formula.DIVIDE else self.formula.value,
            "reciprocal": self.reciprocal,
        }
        return {
            "bits": self.bits,
            "signed": int(self.signed),
            "narrow": int(self.narrow),
            "symmetric": int(self.symmetric),
            "axis": -1 if self.axis is None else self.axis,
            "groups": self.groups,
            **{name: value for name, value in rare.items() if value is not None},
        }

    @classmethod
    def from_attrs(cls, attrs: Mapping[str, Any]) -> QuantSpec:
        """Inverse of `to_attrs`."""
        axis = int(attrs["axis"])
        low, high, reciprocal = (attrs.get(name) for name in ("low", "high", "reciprocal"))
        return cls(
            bits=int(attrs["bits"]),
            signed=bool(int(attrs["signed"])),
            narrow=bool(int(attrs["narrow"])),
            symmetric=bool(int(attrs["symmetric"])),
            axis=None if axis < 0 else axis,
            groups=int(attrs["groups"]),
            low=None if low is None else int(low),
            high=None if high is None else int(high),
            rounding=Rounding(str(attrs.get("rounding") or Rounding.HALF_EVEN.value)),
            formula=Formula(str(attrs.get("formula") or Formula.DIVIDE.value)),
            reciprocal=None if reciprocal is None else float(reciprocal),
        )

    def __str__(self) -> str:
        sign = "s" if self.signed else "u"
        traits = [name for name, on in (("narrow", self.narrow), ("sym", self.symmetric)) if on]
        if self.low is not None or self.high is not None:
            traits.append(f"{self.qmin}..{self.qmax}")
        if self.rounding is not Rounding.HALF_EVEN:
            traits.append(self.rounding.value)
        where = "tensor" if self.axis is None else f"axis {self.axis}"
        return " ".join([f"{sign}{self.bits}", *traits, f"per {where}"])
