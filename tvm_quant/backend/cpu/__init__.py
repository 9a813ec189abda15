"""CPU: channels-last networks, packed weights, register tiles."""

from tvm_quant.backend.cpu.isa import ISAS, Dot, Isa, isa_of
from tvm_quant.backend.cpu.pipeline import cpu_pipeline

__all__ = ["ISAS", "Dot", "Isa", "cpu_pipeline", "isa_of"]
