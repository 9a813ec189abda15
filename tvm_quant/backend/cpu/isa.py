"""What the schedules need to know of an instruction set.

A row is chosen by the features of the target (its `mcpu` and `mattr` as LLVM reads them).
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm.target import Target
from tvm.target.codegen import llvm_get_cpu_features


@dataclass(frozen=True, kw_only=True)
class Isa:
    """Vector unit of a CPU."""

    name: str
    features: frozenset[str]  # all of them are needed, spelled as LLVM does
    vector_bits: int
    registers: int  # vector registers
    pair_dot: str | None = None  # LLVM intrinsic of the exact sum of two 16-bit products
    cache_bytes: int = 128 * 1024  # share of the second-level cache for one tensor of a tile

    @property
    def lanes(self) -> int:
        """32-bit lanes of a vector."""
        return self.vector_bits // 32


ISAS = (
    # Intel SDM vol. 1, chapter 15: 32 registers zmm0..zmm31.
    Isa(
        name="avx512",
        features=frozenset({"avx512f", "avx512bw"}),
        vector_bits=512,
        registers=32,
        pair_dot="llvm.x86.avx512.pmaddw.d.512",
    ),
    # Intel SDM vol. 1, chapter 14: 16 registers ymm0..ymm15.
    Isa(
        name="avx2",
        features=frozenset({"avx2", "fma"}),
        vector_bits=256,
        registers=16,
        pair_dot="llvm.x86.avx2.pmadd.wd",
    ),
    # Baseline of x86-64: 16 registers xmm0..xmm15.
    Isa(
        name="sse2",
        features=frozenset({"sse2"}),
        vector_bits=128,
        registers=16,
        pair_dot="llvm.x86.sse2.pmadd.wd",
    ),
    # Arm ARM, A64: 32 registers v0..v31.
    Isa(name="neon", features=frozenset({"neon"}), vector_bits=128, registers=32),
    # Anything LLVM vectorizes by itself.
    Isa(name="generic", features=frozenset(), vector_bits=128, registers=16),
)


def isa_of(target: Target) -> Isa:
    """The first row of `ISAS` whose features `target` has."""
    features = {str(name) for name in llvm_get_cpu_features(target)}
    return next(isa for isa in ISAS if isa.features <= features)
