"""Rounding weights by what they are multiplied with."""

from tvm_quant.transform.weight_rounding.best_shares import SHARES, best_shares
from tvm_quant.transform.weight_rounding.blocks import Blocks
from tvm_quant.transform.weight_rounding.error_feedback import (
    output_error,
    round_to_nearest,
    round_with_feedback,
)
from tvm_quant.transform.weight_rounding.moments import Moments, gather_moments
from tvm_quant.transform.weight_rounding.patches import Patches

__all__ = [
    "SHARES",
    "Blocks",
    "Moments",
    "Patches",
    "best_shares",
    "gather_moments",
    "output_error",
    "round_to_nearest",
    "round_with_feedback",
]
