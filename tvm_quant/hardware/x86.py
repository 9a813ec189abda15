"""x86 CPUs: unsigned activations times signed weights."""

from __future__ import annotations

from tvm_quant.hardware.config import HardwareConfig, OperandGrids
from tvm_quant.hardware.grid import grids
from tvm_quant.op import Role

U8 = grids("8ANu")
S8 = grids("8SNsn")
S8_WEIGHT = grids("8SCsn 8SNsn")

_OPERANDS = OperandGrids(data=U8, other=U8, weight=S8_WEIGHT)
_PRODUCTS = OperandGrids(data=U8, other=S8, weight=S8_WEIGHT)

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
