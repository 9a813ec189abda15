"""From regions to instruction streams, and a simulator that runs them."""

from tvm_quant.backend.vta.codegen.lower import compile_region
from tvm_quant.backend.vta.codegen.policy import POLICIES
from tvm_quant.backend.vta.codegen.program import Program
from tvm_quant.backend.vta.codegen.runtime import RUN, arguments
from tvm_quant.backend.vta.codegen.sim import Event, Run, Timing, simulate
from tvm_quant.backend.vta.codegen.tile import Tile
from tvm_quant.backend.vta.codegen.trace import LayerTrace, disassembly, kind_of, layer_traces

__all__ = [
    "POLICIES",
    "RUN",
    "Event",
    "LayerTrace",
    "Program",
    "Run",
    "Tile",
    "Timing",
    "arguments",
    "compile_region",
    "disassembly",
    "kind_of",
    "layer_traces",
    "simulate",
]
