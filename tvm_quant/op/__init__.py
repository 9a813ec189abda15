"""The operators that tvm_quant adds to Relax, each with its NumPy reference."""

from tvm_quant.op.requantize import RequantizeMode, is_requantize, requantize, requantize_numpy
from tvm_quant.op.simulated_quantize import (
    is_calibrated,
    is_simulated,
    kind_of,
    quantize_numpy,
    simulated_quantize,
    simulated_quantize_numpy,
    spec_of,
)
from tvm_quant.op.spec import Kind, QuantSpec

__all__ = [
    "Kind",
    "QuantSpec",
    "RequantizeMode",
    "is_calibrated",
    "is_requantize",
    "is_simulated",
    "kind_of",
    "quantize_numpy",
    "requantize",
    "requantize_numpy",
    "simulated_quantize",
    "simulated_quantize_numpy",
    "spec_of",
]
