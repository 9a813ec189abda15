"""Where quantizers stand. `propose` finds the places and `choose` picks a grid for each."""

from tvm_quant.placement.accepted import layer_config
from tvm_quant.placement.disjoint import DisjointSets
from tvm_quant.placement.graph import Graph, Op, Place, Port, Trait
from tvm_quant.placement.merge import Merge, merge
from tvm_quant.placement.proposal import Proposal, Quantizer, Setup, Tensor, choose, propose
from tvm_quant.placement.solve import Point, Solution, solve

__all__ = [
    "DisjointSets",
    "Graph",
    "Merge",
    "Op",
    "Place",
    "Point",
    "Port",
    "Proposal",
    "Quantizer",
    "Setup",
    "Solution",
    "Tensor",
    "Trait",
    "choose",
    "layer_config",
    "merge",
    "propose",
    "solve",
]
