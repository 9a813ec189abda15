"""From regions to instruction streams, and a simulator that runs them."""

from tvm_quant.backend.vta.codegen.lower import compile_region
from tvm_quant.backend.vta.codegen.program import Program
from tvm_quant.backend.vta.codegen.runtime import RUN, arguments
from tvm_quant.backend.vta.codegen.sim import Run, Timing, simulate

__all__ = ["RUN", "Program", "Run", "Timing", "arguments", "compile_region", "simulate"]
