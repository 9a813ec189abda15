"""What the schedules need to know of an instruction set.

A row is chosen by the features of the target (its `mcpu` and `mattr` as LLVM reads them).
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm.target import Target
from tvm.target.codegen import llvm_get_cpu_features

# What data of a type can be converted to without a loss, as an instruction reads it.
CONVERTS = {
    "int16": ("int8", "uint8", "int16"),
    "uint8": ("uint8", "int8"),
    "int8": ("int8", "uint8"),
}
LOWEST = {"int8": -128, "uint8": 0}

MIN_INTERLEAVED = 8  # bytes of a row that one load reads
LARGEST_PAIR = 2 * 128  # of the magnitudes of two int8 weights


@dataclass(frozen=True, kw_only=True)
class Dot:
    """An instruction for exact dot products of data and int8 weights, one per int32 lane.

    Attributes:
        data: type as which it reads the data.
        size: products of a lane; together their data has 32 bits.
        instruction: LLVM's name of it; operands are (lanes,) data, weights.
        accumulates: whether it also adds the lanes' old values, its first operand then.
        widening: LLVM's name of an instruction that adds the 16-bit sums of two products each that
            this one leaves; it multiplies them, by ones.
        largest_pair: of two neighbouring weights, the largest sum of the magnitudes of those of one
            sign with which the products are exact.
    """

    data: str
    size: int
    instruction: str
    accumulates: bool = True
    widening: str | None = None
    largest_pair: int = LARGEST_PAIR

    @property
    def per_product(self) -> float:
        """Instructions per product of a lane: multiplication, addition in 32 bits, and widening."""
        return (1 + (not self.accumulates) + (self.widening is not None)) / self.size

    @property
    def multiplications(self) -> int:
        """Instructions among these that multiply: a CPU starts no more than two of them a cycle."""
        return 2 if self.widening else 1

    def takes(self, dtype: str) -> bool:
        """Whether data of `dtype` can be converted to what the instruction reads."""
        return dtype in CONVERTS[self.data]

    def offset(self, dtype: str) -> int:
        """What the conversion of data of `dtype` adds to each value: 0, 128 or -128."""
        return byte_offset(dtype, self.data)


def byte_offset(dtype: str, other: str) -> int:
    """What maps the range of one 8-bit type to that of another; 0 for all other types.

    >>> byte_offset("int8", "uint8"), byte_offset("uint8", "int8"), byte_offset("int8", "int16")
    (128, -128, 0)
    """
    if dtype not in LOWEST or other not in LOWEST:
        return 0
    return LOWEST[other] - LOWEST[dtype]


@dataclass(frozen=True, kw_only=True)
class Isa:
    """Vector unit of a CPU."""

    name: str
    features: frozenset[str]  # all of them are needed, spelled as LLVM does
    vector_bits: int
    registers: int  # vector registers
    hardware: str  # row of `tvm_quant.hardware` to quantize for: what runs fastest
    dots: tuple[Dot, ...] = ()  # the most products first
    converts_rounded: bool = False  # float32 to int32, ties to even; and clamps int32 as fast
    cache_bytes: int = 128 * 1024  # share of the second-level cache for one tensor of a tile

    @property
    def lanes(self) -> int:
        """32-bit lanes of a vector."""
        return self.vector_bits // 32

    def dot(self, dtype: str, *, size: int | None = None, pair: int = LARGEST_PAIR) -> Dot | None:
        """The best instruction for data of `dtype` and int8 weights.

        One that reads `dtype` as it is comes before one for which the data has to be converted.

        Args:
            dtype: of the data.
            size: products of a lane, if that is settled.
            pair: see `Dot.largest_pair`: of the weights.
        """
        fit = [
            dot
            for dot in self.dots
            if dot.takes(dtype) and size in (None, dot.size) and pair <= dot.largest_pair
        ]
        return next((dot for dot in fit if dot.data == dtype), fit[0] if fit else None)

    def tap_dot(self, dtype: str) -> Dot | None:
        """The best instruction for data of `dtype` that is interleaved from rows of bytes.

        None for short vectors, and where one instruction is not all: interleaving would take longer
        than it saves.
        """
        dot = self.dot(dtype, size=4)
        return dot if dot and dot.accumulates and self.lanes >= MIN_INTERLEAVED else None


def _pairs(instruction: str) -> Dot:
    """Products of 16 bits summed in 32: exact for all weights."""
    return Dot(data="int16", size=2, instruction=instruction, accumulates=False)


def _quads(instruction: str, pairs: str) -> Dot:
    """Products of 8 bits, of which two are summed in 16 with saturation, then both in 32.

    255 * 128 is the largest sum that 16 bits hold.
    """
    return Dot(
        data="uint8",
        size=4,
        instruction=instruction,
        accumulates=False,
        widening=pairs,
        largest_pair=128,
    )


ISAS = (
    # Intel SDM vol. 1, chapter 15: 32 registers zmm0..zmm31; vol. 2, VPDPBUSD, VPDPWSSD.
    Isa(
        name="avx512vnni",
        features=frozenset({"avx512f", "avx512bw", "avx512vnni"}),
        vector_bits=512,
        registers=32,
        hardware="x86_vnni",
        converts_rounded=True,
        dots=(
            Dot(data="uint8", size=4, instruction="llvm.x86.avx512.vpdpbusd.512"),
            Dot(data="int16", size=2, instruction="llvm.x86.avx512.vpdpwssd.512"),
        ),
    ),
    Isa(
        name="avx512",
        features=frozenset({"avx512f", "avx512bw"}),
        vector_bits=512,
        registers=32,
        hardware="x86_avx2",
        converts_rounded=True,
        dots=(
            _quads("llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx512.pmaddw.d.512"),
            _pairs("llvm.x86.avx512.pmaddw.d.512"),
        ),
    ),
    # The same instruction on ymm registers, VEX-encoded; LLVM has one name for both encodings.
    Isa(
        name="avxvnni",
        features=frozenset({"avx2", "fma", "avxvnni"}),
        vector_bits=256,
        registers=16,
        hardware="x86_vnni",
        converts_rounded=True,
        dots=(
            Dot(data="uint8", size=4, instruction="llvm.x86.avx512.vpdpbusd.256"),
            Dot(data="int16", size=2, instruction="llvm.x86.avx512.vpdpwssd.256"),
        ),
    ),
    # Intel SDM vol. 1, chapter 14: 16 registers ymm0..ymm15; vol. 2, PMADDWD and PMADDUBSW.
    Isa(
        name="avx2",
        features=frozenset({"avx2", "fma"}),
        vector_bits=256,
        registers=16,
        hardware="x86_avx2",
        converts_rounded=True,
        dots=(
            _quads("llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd"),
            _pairs("llvm.x86.avx2.pmadd.wd"),
        ),
    ),
    # Baseline of x86-64: 16 registers xmm0..xmm15.
    Isa(
        name="sse2",
        features=frozenset({"sse2"}),
        vector_bits=128,
        registers=16,
        hardware="x86_vnni",
        dots=(_pairs("llvm.x86.sse2.pmadd.wd"),),
    ),
    # Arm ARM, A64: 32 registers v0..v31; FEAT_I8MM (USDOT), FEAT_DotProd (SDOT).
    Isa(
        name="neon_i8mm",
        features=frozenset({"neon", "dotprod", "i8mm"}),
        vector_bits=128,
        registers=32,
        hardware="arm_dot",
        dots=(
            Dot(data="uint8", size=4, instruction="llvm.aarch64.neon.usdot.v4i32.v16i8"),
            Dot(data="int8", size=4, instruction="llvm.aarch64.neon.sdot.v4i32.v16i8"),
        ),
    ),
    Isa(
        name="neon_dotprod",
        features=frozenset({"neon", "dotprod"}),
        vector_bits=128,
        registers=32,
        hardware="arm_dot",
        dots=(Dot(data="int8", size=4, instruction="llvm.aarch64.neon.sdot.v4i32.v16i8"),),
    ),
    Isa(
        name="neon", features=frozenset({"neon"}), vector_bits=128, registers=32, hardware="arm_dot"
    ),
    # Anything LLVM vectorizes by itself.
    Isa(name="generic", features=frozenset(), vector_bits=128, registers=16, hardware="generic"),
)


def isa_of(target: Target) -> Isa:
    """The first row of `ISAS` whose features `target` has."""
    features = {str(name) for name in llvm_get_cpu_features(target)}
    return next(isa for isa in ISAS if isa.features <= features)
