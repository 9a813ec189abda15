"""Rounding weights by what they are multiplied with."""

from tvm_quant.transform.weight_rounding.best_shares import SHARES, best_shares
from tvm_quant.transform.weight_rounding.blocks import Blocks
from tvm_quant.transform.weight_rounding.error_feedback import (
    output_error,
    round_to_nearest,
    round_with_feedback,
)
from tvm_quant.transform.weight_rounding.inputs import LayerInputs
from tvm_quant.transform.weight_rounding.layer import Rounded, WeightLayer, weight_layers
from tvm_quant.transform.weight_rounding.moments import (
    LayerReading,
    Moments,
    Read,
    Reading,
    add_reads,
    gather_moments,
)
from tvm_quant.transform.weight_rounding.patches import Patches

__all__ = [
    "SHARES",
    "Blocks",
    "LayerInputs",
    "LayerReading",
    "Moments",
    "Patches",
    "Read",
    "Reading",
    "Rounded",
    "WeightLayer",
    "add_reads",
    "best_shares",
    "gather_moments",
    "output_error",
    "round_to_nearest",
    "round_with_feedback",
    "weight_layers",
]
