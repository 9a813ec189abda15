"""What a float variable becomes: codes, an accumulator, a table, or float as before.

Codes         real = scale * (expr - zero_point)
Accumulator   real = clamp(scale * (expr + offset) + residue, low, high)
Table         real = values[codes - qmin]
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from tvm_quant.op import QuantSpec

Array = npt.NDArray[Any]

INT32_LIMIT = float(2**31 - 1)
INT64_LIMIT = float(2**62)


@dataclass(frozen=True, kw_only=True)
class Float:
    """A tensor that stays in float."""

    expr: relax.Expr


@dataclass(frozen=True, kw_only=True)
class Codes:
    """A quantized tensor.

    Attributes:
        expr: integers of `spec.dtype`.
        scale: float64, shape () or of the tensor's rank.
        zero_point: int64, shape of scale.
        spec: the grid.
    """

    expr: relax.Expr
    scale: Array
    zero_point: Array
    spec: QuantSpec

    @property
    def largest(self) -> float:
        """Upper bound of |code - zero point|."""
        return float(
            max(np.max(self.spec.qmax - self.zero_point), np.max(self.zero_point - self.spec.qmin))
        )

    @property
    def reach(self) -> float:
        """Upper bound of |code| as well: what sums of the codes as they are can hold."""
        return max(self.largest, float(max(-self.spec.qmin, self.spec.qmax)))

    def same_grid(self, other: Codes) -> bool:
        """Whether both tensors have one grid, scale and zero point."""
        return (
            self.spec.dtype == other.spec.dtype
            and np.array_equal(self.scale, other.scale)
            and np.array_equal(self.zero_point, other.zero_point)
        )


@dataclass(frozen=True, kw_only=True)
class Accumulator:
    """Wide integers with a scale per channel and a constant and a clamp that are not applied yet.

    Attributes:
        expr: int32 or int64.
        scale: float64, > 0, shape () or of the tensor's rank, broadcastable.
        bound: upper bound of |expr| and |expr + offset|, per element of the broadcast shape.
        offset: int64, broadcastable: added before the clamp.
        fraction: int64, broadcastable: bits that a sum gained below the point, and may give up.
        low, high: clamp of the real value, broadcastable; infinite if none.
        residue: float64, broadcastable: the part of an added constant that whole steps leave out.
    """

    expr: relax.Expr
    scale: Array
    bound: Array
    offset: Array = field(default_factory=lambda: np.zeros((), "int64"))
    fraction: Array = field(default_factory=lambda: np.zeros((), "int64"))
    low: Array = field(default_factory=lambda: np.full((), -np.inf))
    high: Array = field(default_factory=lambda: np.full((), np.inf))
    residue: Array = field(default_factory=lambda: np.zeros(()))

    @property
    def is_clamped(self) -> bool:
        """Whether a clamp is pending."""
        return bool(np.isfinite(self.low).any() or np.isfinite(self.high).any())

    @property
    def dtype(self) -> str:
        """The integer type of `expr`."""
        return str(self.expr.ty.dtype)

    def clamp(self, low: npt.ArrayLike, high: npt.ArrayLike) -> Accumulator:
        """Narrow the pending clamp, as min(max(x, low), high) does."""
        return replace(
            self,
            low=np.minimum(np.maximum(self.low, low), high),
            high=np.minimum(np.maximum(self.high, low), high),
        )


@dataclass(frozen=True, kw_only=True)
class Table:
    """A function of the codes of one tensor.

    Attributes:
        codes: the tensor, with one scale.
        values: float32, (levels,): value of the function at each code.
        clamp: (low, high) if the function is just that clamp of the tensor.
    """

    codes: Codes
    values: Array
    clamp: tuple[float, float] | None = None


Value = Float | Codes | Accumulator | Table


def table_of(codes: Codes) -> Table:
    """The identity table of a tensor with one scale."""
    levels = np.arange(codes.spec.qmin, codes.spec.qmax + 1, dtype="float64")
    real = (levels - float(codes.zero_point)) * float(codes.scale)
    return Table(codes=codes, values=real.astype("float32"), clamp=(-np.inf, np.inf))
