"""x86 CPUs: unsigned activations times signed weights."""

from __future__ import annotations

from tvm_quant.hardware.config import HardwareConfig, OperandSpecs
from tvm_quant.op import QuantSpec, Role

U8 = QuantSpec(bits=8, signed=False, symmetric=False)
S8 = QuantSpec(bits=8, signed=True, narrow=True, symmetric=True)

_OPERANDS = OperandSpecs(data=(U8,), other=(U8,), weight=(S8,))
_PRODUCTS = OperandSpecs(data=(U8,), other=(S8,), weight=(S8,))

ROLES = dict.fromkeys(Role, _OPERANDS) | {Role.CONTRACTION: _PRODUCTS}

X86_VNNI = HardwareConfig(
    name="x86_vnni",
    source="Intel 64 and IA-32 Architectures Software Developer's Manual, vol. 2, VPDPBUSD: "
    "u8 x s8 products, four at a time, added to s32 without saturation",
    roles=ROLES,
)

X86_AVX2 = HardwareConfig(
    name="x86_avx2",
    source="the same manual, VPMADDUBSW: u8 x s8 products, two at a time, added in s16 with "
    "saturation, which pairs of weights up to 128 do not reach",
    roles=ROLES,
    largest_pair=128,
)
