"""Int32 arithmetic modulo 2**32.

TVM tells LLVM that sums of 32 bits do not overflow, which lets it compute anything where they do.
These sums may: they are an intrinsic that LLVM defines as two's complement. It takes vectors alone,
so a loop around it has to be vectorized.

Source: LLVM language reference, `add` (nsw) and `llvm.vector.partial.reduce.add`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm.script import tirx as T  # noqa: N812
from tvm.tirx import Expr, const

ADD = "llvm.vector.partial.reduce.add"  # of as many sums as terms: one addition a lane


def wrapping_add(left: Expr, right: Expr) -> Expr:
    """The sum of two int32 vectors, or of what becomes them."""
    function = T.llvm_lookup_intrinsic_id(ADD)
    return T.call_llvm_pure_intrin(function, left, right, dtype=left.ty.dtype)


@dataclass(frozen=True)
class Wrapping:
    """An int32 expression with the operators of arithmetic modulo 2**32."""

    expr: Expr

    def __add__(self, other: Wrapping) -> Wrapping:
        return Wrapping(wrapping_add(self.expr, other.expr))

    def __sub__(self, other: Wrapping) -> Wrapping:
        negative = wrapping_add(~other.expr, const(1, "int32"))
        return Wrapping(wrapping_add(self.expr, negative))

    def __mul__(self, power: int) -> Wrapping:
        """Times a power of two."""
        return self << power.bit_length() - 1

    def __lshift__(self, bits: int) -> Wrapping:
        return Wrapping(T.shift_left(self.expr, const(bits, "int32")))

    def divided(self, number: int) -> Wrapping:
        """The only value whose multiple by an odd number 2**k + 1 this is."""
        bits = (number - 1).bit_length() - 1
        value = self - (self << bits)
        while 2 * bits < 32:
            bits *= 2
            value = value + (value << bits)
        return value
