"""VTA: instruction streams for the Versatile Tensor Accelerator, and a simulator that runs them."""

from tvm_quant.backend.vta.config import VtaConfig
from tvm_quant.backend.vta.layer import (
    Add,
    Convolution,
    Dense,
    Layer,
    MaxPool,
    Region,
    Residual,
    Tensor,
)
from tvm_quant.backend.vta.program import Program
from tvm_quant.backend.vta.region import compile_region

__all__ = [
    "Add",
    "Convolution",
    "Dense",
    "Layer",
    "MaxPool",
    "Program",
    "Region",
    "Residual",
    "Tensor",
    "VtaConfig",
    "compile_region",
]
