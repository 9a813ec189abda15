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
        signed: it is the code 127, and -128 is there too; otherwise it is the code 255.

    Source: src/operator/quantization/quantization_utils.h of MXNet 1.9.1, as its CUDA kernels and
    those of matrix products mean it. Its oneDNN kernels that make codes of float tensors and float
    tensors of codes divide by 127.5 and 255.5, so their codes differ by one here and there.

    >>> Grid(reach=63.75, signed=False).scale
    0.25
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
        return QuantSpec(bits=8, signed=self.signed)


#: {variable of a quantized tensor: its grid}.
Grids = dict[relax.Var, Grid]
