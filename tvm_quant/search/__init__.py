"""Searching bits layer by layer: sensitivities, assignment under a budget, accuracy control."""

from tvm_quant.search.assign import assign
from tvm_quant.search.budget import Budget
from tvm_quant.search.choice import FLOAT, Choice
from tvm_quant.search.control_accuracy import (
    AccuracyTarget,
    AccuracyWarning,
    Controlled,
    Fallback,
    Step,
    control_accuracy,
)
from tvm_quant.search.layer_groups import LayerGroup, layer_groups
from tvm_quant.search.measure_latency import Latencies, measure_latency
from tvm_quant.search.measure_sensitivity import Sensitivity, measure_sensitivity
from tvm_quant.search.search_bits import WEIGHT_BITS, Found, Row, choose, search_bits
from tvm_quant.search.subject import Subject

__all__ = [
    "FLOAT",
    "WEIGHT_BITS",
    "AccuracyTarget",
    "AccuracyWarning",
    "Budget",
    "Choice",
    "Controlled",
    "Fallback",
    "Found",
    "Latencies",
    "LayerGroup",
    "Row",
    "Sensitivity",
    "Step",
    "Subject",
    "assign",
    "choose",
    "control_accuracy",
    "layer_groups",
    "measure_latency",
    "measure_sensitivity",
    "search_bits",
]
