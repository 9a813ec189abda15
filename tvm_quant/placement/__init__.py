"""Where quantizers stand. `propose` finds the places and `choose` picks a grid for each."""

from tvm_quant.placement.proposal import (
    Candidate,
    Place,
    Proposal,
    Quantizer,
    Setup,
    choose,
    layer_config,
)
from tvm_quant.placement.rules import propose

__all__ = [
    "Candidate",
    "Place",
    "Proposal",
    "Quantizer",
    "Setup",
    "choose",
    "layer_config",
    "propose",
]
