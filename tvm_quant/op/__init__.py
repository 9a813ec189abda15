"""The operators that tvm_quant adds to Relax, each with its NumPy reference."""

from tvm_quant.op.contraction import ContractionAxes, contraction_axes, is_depthwise
from tvm_quant.op.known_range import known_range
from tvm_quant.op.quantize import quantize
from tvm_quant.op.requantize import (
    RequantizeMode,
    fixed_point_multiplier,
    is_requantize,
    requantize,
    requantize_numpy,
    scaled,
)
from tvm_quant.op.rounding import Rounding, round_numpy, round_te
from tvm_quant.op.sequential_conv2d import (
    is_sequential_conv2d,
    sequential_conv2d,
    sequential_conv2d_numpy,
)
from tvm_quant.op.simulated_quantize import (
    ANNOTATED,
    NO_GROUP,
    brings_scales,
    calibrated,
    convention_of,
    group_of,
    is_annotated,
    is_calibrated,
    is_simulated,
    kind_of,
    quantize_numpy,
    rounded_numpy,
    scale_of,
    simulated_quantize,
    simulated_quantize_numpy,
    spec_of,
)
from tvm_quant.op.spec import Convention, Formula, Kind, QuantSpec
from tvm_quant.op.table import (
    OP_SPECS,
    OpSpec,
    Role,
    op_function,
    role_of,
    spec_for,
    why_no_integers,
)
from tvm_quant.op.threshold import is_threshold, threshold, threshold_numpy

__all__ = [
    "ANNOTATED",
    "NO_GROUP",
    "OP_SPECS",
    "ContractionAxes",
    "Convention",
    "Formula",
    "Kind",
    "OpSpec",
    "QuantSpec",
    "RequantizeMode",
    "Role",
    "Rounding",
    "brings_scales",
    "calibrated",
    "contraction_axes",
    "convention_of",
    "fixed_point_multiplier",
    "group_of",
    "is_annotated",
    "is_calibrated",
    "is_depthwise",
    "is_requantize",
    "is_sequential_conv2d",
    "is_simulated",
    "is_threshold",
    "kind_of",
    "known_range",
    "op_function",
    "quantize",
    "quantize_numpy",
    "requantize",
    "requantize_numpy",
    "role_of",
    "round_numpy",
    "round_te",
    "rounded_numpy",
    "scale_of",
    "scaled",
    "sequential_conv2d",
    "sequential_conv2d_numpy",
    "simulated_quantize",
    "simulated_quantize_numpy",
    "spec_for",
    "spec_of",
    "threshold",
    "threshold_numpy",
    "why_no_integers",
]
