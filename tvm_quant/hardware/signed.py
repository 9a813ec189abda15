"""Targets that multiply signed by signed."""

from __future__ import annotations

from tvm_quant.hardware.config import HardwareConfig, OperandGrids
from tvm_quant.hardware.grid import grids
from tvm_quant.op import RequantizeMode, Role

S8 = grids("8SNsn")
S8_AFFINE = grids("8ANs")
S8_WEIGHT = grids("8SCsn 8SNsn")

_AFFINE = OperandGrids(data=S8_AFFINE, other=S8_AFFINE, weight=S8_WEIGHT)
_SYMMETRIC = OperandGrids(data=S8, other=S8, weight=S8_WEIGHT)

AFFINE = dict.fromkeys(Role, _AFFINE) | {
    Role.CONTRACTION: OperandGrids(data=S8_AFFINE, other=S8, weight=S8_WEIGHT)
}
SYMMETRIC = dict.fromkeys(Role, _SYMMETRIC)

GENERIC = HardwareConfig(
    name="generic",
    source="ONNX QuantizeLinear with int8: any target that TVM compiles for",
    roles=SYMMETRIC,
)

ARM_DOT = HardwareConfig(
    name="arm_dot",
    source="Arm Architecture Reference Manual for A-profile, SDOT: "
    "s8 x s8 products, four at a time, in s32",
    roles=AFFINE,
)

CUDA_DP4A = HardwareConfig(
    name="cuda_dp4a",
    source="CUDA C++ Programming Guide, __dp4a: s8 x s8 products, four at a time, in s32",
    roles=SYMMETRIC,
)

VTA = HardwareConfig(
    name="vta",
    source="VTA hardware: s8 x s8 in s32, results shifted right "
    "(Moreau et al., arXiv:1807.04188, section 2)",
    roles=SYMMETRIC,
    requantize=RequantizeMode.SHIFT,
    power_of_two_scales=True,
    sums_leave=False,
)
