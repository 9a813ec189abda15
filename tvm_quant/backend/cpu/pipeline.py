"""The CPU pipeline: from Relax to scheduled loops."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax.backend.cpu_generic import pipeline as generic
from tvm.target import Target

from tvm_quant.backend.cpu.channels_last import ChannelsLast
from tvm_quant.backend.cpu.decompose import DecomposeInference
from tvm_quant.backend.cpu.fold import FoldCheapConstants
from tvm_quant.backend.cpu.isa import isa_of
from tvm_quant.backend.cpu.look_up import AnnotateLookUps, LowerLookUps
from tvm_quant.backend.cpu.lower import LowerContractions
from tvm_quant.backend.cpu.plan_memory import PlanMemory
from tvm_quant.backend.cpu.round import RoundInRegisters
from tvm_quant.backend.cpu.schedule import ApplySchedules
from tvm_quant.backend.cpu.tune import TuneContractions, Tuner


def cpu_pipeline(target: Target, *, tune: bool = False) -> tvm.transform.Pass:
    """Relax pipeline for an `llvm` target, to be given to `tvm.compile`.

    Args:
        target: to compile for.
        tune: whether to measure tiles; the target is this machine then.
    """
    isa = isa_of(target)
    passes = generic.legalize_passes(target)
    legalize, fuse = passes[:2], passes[2:]  # up to the patterns that FuseOps reads
    phases = [
        # Layout: one form of each operator, channels last
        DecomposeInference(),
        relax.transform.CanonicalizeBindings(),
        FoldCheapConstants(),
        ChannelsLast(),
        FoldCheapConstants(),
        # Kernels: packed weights, then everything else as TVM lowers it
        LowerContractions(isa),
        LowerLookUps(),
        RoundInRegisters(isa),
        *generic.library_dispatch_passes(target),
        *legalize,
        AnnotateLookUps(),
        *fuse,
        relax.transform.DeadCodeElimination(),
        # Loops
        *([TuneContractions(Tuner(isa, target))] if tune else []),
        ApplySchedules(isa),
        # Memory and calls
        *generic.dataflow_lower_passes(target),
        PlanMemory(),
        *generic.finalize_passes(target)[1:],  # all but the planner
    ]

    @tvm.transform.module_pass(opt_level=0, name="CpuPipeline")
    def pipeline(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        with target:
            return tvm.transform.Sequential(phases)(mod)

    return pipeline
