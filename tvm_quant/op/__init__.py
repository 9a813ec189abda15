"""The operators that tvm_quant adds to Relax, each with its NumPy reference."""

from tvm_quant.op.contraction import ContractionAxes, contraction_axes, is_depthwise
from tvm_quant.op.known_range import known_range
from tvm_quant.op.requantize import RequantizeMode, is_requantize, requantize, requantize_numpy
from tvm_quant.op.simulated_quantize import (
    NO_GROUP,
    calibrated,
    group_of,
    is_calibrated,
    is_simulated,
    kind_of,
    quantize_numpy,
    scale_of,
    simulated_quantize,
    simulated_quantize_numpy,
    spec_of,
)
from tvm_quant.op.spec import Kind, QuantSpec
from tvm_quant.op.table import (
    OP_SPECS,
    OpSpec,
    Role,
    op_function,
    role_of,
    spec_for,
    why_no_integers,
)

__all__ = [
    "NO_GROUP",
    "OP_SPECS",
    "ContractionAxes",
    "Kind",
    "OpSpec",
    "QuantSpec",
    "RequantizeMode",
    "Role",
    "calibrated",
    "contraction_axes",
    "group_of",
    "is_calibrated",
    "is_depthwise",
    "is_requantize",
    "is_simulated",
    "kind_of",
    "known_range",
    "op_function",
    "quantize_numpy",
    "requantize",
    "requantize_numpy",
    "role_of",
    "scale_of",
    "simulated_quantize",
    "simulated_quantize_numpy",
    "spec_for",
    "spec_of",
    "why_no_integers",
]
