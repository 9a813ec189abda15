"""Hardware rows. A new target is one file and one entry in `HARDWARE`."""

from tvm_quant.errors import ConfigError
from tvm_quant.hardware.config import HardwareConfig, OperandGrids
from tvm_quant.hardware.grid import Grid, grids
from tvm_quant.hardware.signed import ARM_DOT, CUDA_DP4A, GENERIC, VTA
from tvm_quant.hardware.x86 import X86_AVX2, X86_VNNI

HARDWARE: dict[str, HardwareConfig] = {
    row.name: row for row in (X86_VNNI, X86_AVX2, ARM_DOT, CUDA_DP4A, VTA, GENERIC)
}


def hardware_row(name: str) -> HardwareConfig:
    """The row of that name.

    Raises:
        ConfigError: no such row; the message lists the names.
    """
    if name not in HARDWARE:
        raise ConfigError(f"Unknown hardware '{name}'; valid names are {sorted(HARDWARE)}.")
    return HARDWARE[name]


__all__ = ["HARDWARE", "Grid", "HardwareConfig", "OperandGrids", "grids", "hardware_row"]
