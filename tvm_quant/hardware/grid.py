"""`Grid`: one kind of integer grid that an operator accepts, before scales and axes are known."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tvm_quant.errors import ConfigError
from tvm_quant.op import QuantSpec

_CODE = re.compile(r"(\d+)([SA])([NC])([su]?)(n?)")


@dataclass(frozen=True, kw_only=True)
class Grid:
    """What a hardware row asks of a quantizer.

    A short code writes it in one word: bits, `S`ymmetric or `A`symmetric, one scale per te`N`sor or
    per `C`hannel, then `s` or `u` where the sign is forced and `n` for a narrow range.

    Attributes:
        bits: width of a code, 1 to 32.
        symmetric: whether the zero point is fixed.
        per_channel: one scale per channel instead of one per tensor.
        signed: None leaves it to the data: unsigned where they are known not to be negative.
        narrow: drop the lowest code of a signed grid.

    >>> Grid.parse("8SCsn")
    Grid(bits=8, symmetric=True, per_channel=True, signed=True, narrow=True)
    >>> str(Grid(bits=4, symmetric=False))
    '4AN'
    """

    bits: int = 8
    symmetric: bool = True
    per_channel: bool = False
    signed: bool | None = None
    narrow: bool = False

    def __post_init__(self) -> None:
        self.spec(signed=True if self.signed is None else self.signed)

    @classmethod
    def parse(cls, code: str) -> Grid:
        """The grid of a short code.

        Raises:
            ConfigError: the text is no such code.
        """
        found = _CODE.fullmatch(code)
        if found is None:
            raise ConfigError(
                f"'{code}' is no grid; expected bits, S or A, N or C, then perhaps s or u and n, "
                "such as 8SN, 8ANu or 4SCsn."
            )
        bits, mode, granularity, sign, narrow = found.groups()
        return cls(
            bits=int(bits),
            symmetric=mode == "S",
            per_channel=granularity == "C",
            signed={"s": True, "u": False, "": None}[sign],
            narrow=bool(narrow),
        )

    @classmethod
    def of(cls, spec: QuantSpec) -> Grid:
        """The grid of a quantizer.

        >>> str(Grid.of(QuantSpec(bits=8, narrow=True, axis=0)))
        '8SCsn'
        """
        return cls(
            bits=spec.bits,
            symmetric=spec.symmetric,
            per_channel=spec.axis is not None,
            signed=spec.signed,
            narrow=spec.narrow,
        )

    def __str__(self) -> str:
        sign = {True: "s", False: "u", None: ""}[self.signed]
        mode, granularity = "S" if self.symmetric else "A", "C" if self.per_channel else "N"
        return f"{self.bits}{mode}{granularity}{sign}{'n' * self.narrow}"

    def spec(self, *, signed: bool, axis: int | None = None, groups: int = 1) -> QuantSpec:
        """The grid as a quantizer holds it.

        Args:
            signed: the sign where this grid leaves it open.
            axis, groups: channel axis of the tensor (see `QuantSpec`); used if `per_channel`.
        """
        signed = signed if self.signed is None else self.signed
        return QuantSpec(
            bits=self.bits,
            signed=signed,
            narrow=self.narrow and (signed or self.signed is False),
            symmetric=self.symmetric,
            axis=axis if self.per_channel else None,
            groups=groups if self.per_channel else 1,
        )


def grids(codes: str) -> tuple[Grid, ...]:
    """The grids of several codes.

    >>> [grid.bits for grid in grids("8SN 4SN")]
    [8, 4]
    """
    return tuple(Grid.parse(code) for code in codes.split())
