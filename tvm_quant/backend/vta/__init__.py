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

__all__ = [
    "Add",
    "Convolution",
    "Dense",
    "Layer",
    "MaxPool",
    "Region",
    "Residual",
    "Tensor",
    "VtaConfig",
]
