"""Hardware rows. A new target is one file and one entry in `HARDWARE`, or a YAML file."""

from tvm_quant.errors import ConfigError
from tvm_quant.hardware.config import HardwareConfig, OperandGrids
from tvm_quant.hardware.grid import Grid, grids
from tvm_quant.hardware.npu import NPU
from tvm_quant.hardware.read import SUFFIXES, read_row, row_of
from tvm_quant.hardware.signed import ARM_DOT, CUDA_DP4A, GENERIC, VTA
from tvm_quant.hardware.x86 import X86_AVX2, X86_VNNI

HARDWARE: dict[str, HardwareConfig] = {
    row.name: row for row in (X86_VNNI, X86_AVX2, ARM_DOT, CUDA_DP4A, VTA, NPU, GENERIC)
}


def hardware_row(name: str) -> HardwareConfig:
    """The row of that name, or the one in a YAML file of that name.

    Raises:
        ConfigError: no such row, where the message lists the names; or see `read_row`.
    """
    if name.endswith(SUFFIXES):
        return read_row(name)
    if name not in HARDWARE:
        raise ConfigError(
            f"Unknown hardware '{name}'; valid names are {sorted(HARDWARE)}, and YAML files."
        )
    return HARDWARE[name]


__all__ = [
    "HARDWARE",
    "SUFFIXES",
    "Grid",
    "HardwareConfig",
    "OperandGrids",
    "grids",
    "hardware_row",
    "read_row",
    "row_of",
]
