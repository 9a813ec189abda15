"""Grids of MXNet's codes: 8 bits, one scale to a tensor, zero stands for zero."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax

from tvm_quant.op import QuantSpec


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Codes of a tensor.

    Attributes:
        reach: the largest magnitude that a code stands for, > 0.
        signed: codes from -127 to 127; otherwise from 0 to 255.

    Source: src/operator/quantization/quantization_utils.h of MXNet 1.9.1.

    >>> Grid(reach=2.55, signed=False).scale
    0.01
    """

    reach: float
    signed: bool

    @property
    def scale(self) -> float:
        """The step between two codes."""
        return self.reach / (127 if self.signed else 255)

    @property
    def spec(self) -> QuantSpec:
        """The codes."""
        return QuantSpec(bits=8, signed=self.signed, narrow=self.signed)


#: {variable of a quantized tensor: its grid}.
Grids = dict[relax.Var, Grid]
