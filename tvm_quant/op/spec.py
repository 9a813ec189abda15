"""What a quantizer maps to: the integer grid (`QuantSpec`) and its role (`Kind`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from tvm_quant.errors import ConfigError

STORAGE_BITS = (8, 16, 32)
MAX_BITS = 32


class Kind(str, Enum):
    """The role of a quantized tensor."""

    INPUT = "input"  # a graph input: its scale may be given by the user's data format
    WEIGHT = "weight"  # a constant: calibrated from its own values
    ACTIVATION = "activation"  # computed at run time: calibrated from a dataset
    BIAS = "bias"  # a constant at the accumulator's scale


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

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= MAX_BITS:
            raise ConfigError(f"QuantSpec.bits is {self.bits}; expected 1 to {MAX_BITS}.")
        if self.narrow and not self.signed:
            raise ConfigError("QuantSpec: a narrow range only exists for signed grids.")
        if self.narrow and self.bits == 1:
            raise ConfigError("QuantSpec: a 1-bit grid has no code to drop for a narrow range.")

    @property
    def qmin(self) -> int:
        """Smallest code."""
        return -(1 << (self.bits - 1)) + int(self.narrow) if self.signed else 0

    @property
    def qmax(self) -> int:
        """Largest code."""
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

    def per_tensor(self) -> QuantSpec:
        """The same grid with one scale."""
        return replace(self, axis=None, groups=1)

    def to_attrs(self) -> dict[str, int]:
        """Plain integers, as stored in the attributes of an IR call."""
        return {
            "bits": self.bits,
            "signed": int(self.signed),
            "narrow": int(self.narrow),
            "symmetric": int(self.symmetric),
            "axis": -1 if self.axis is None else self.axis,
            "groups": self.groups,
        }

    @classmethod
    def from_attrs(cls, attrs: Mapping[str, Any]) -> QuantSpec:
        """Inverse of `to_attrs`."""
        axis = int(attrs["axis"])
        return cls(
            bits=int(attrs["bits"]),
            signed=bool(int(attrs["signed"])),
            narrow=bool(int(attrs["narrow"])),
            symmetric=bool(int(attrs["symmetric"])),
            axis=None if axis < 0 else axis,
            groups=int(attrs["groups"]),
        )

    def __str__(self) -> str:
        sign = "s" if self.signed else "u"
        traits = [name for name, on in (("narrow", self.narrow), ("sym", self.symmetric)) if on]
        where = "tensor" if self.axis is None else f"axis {self.axis}"
        return " ".join([f"{sign}{self.bits}", *traits, f"per {where}"])
