"""The VTA pipeline: regions become programs, and the CPU does the rest."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax
from tvm.target import Target

from tvm_quant.backend.cpu import cpu_pipeline
from tvm_quant.backend.vta.codegen import RUN, arguments, compile_region
from tvm_quant.backend.vta.layer import Region
from tvm_quant.backend.vta.partition import PartitionVta
from tvm_quant.backend.vta.target import vta_options


def vta_pipeline(target: Target, *, tune: bool = False) -> tvm.transform.Pass:
    """Relax pipeline for target "vta", to be given to `tvm.compile`.

    Args:
        target: of `resolve_target`.
        tune: whether to measure tiles of what remains on this CPU.
    """
    options = vta_options(target)

    def program_of(region: Region) -> Sequence[relax.Expr]:
        return arguments(compile_region(region, options.config, extended=options.extended))

    phases = [PartitionVta(RUN, program_of), cpu_pipeline(target, tune=tune)]
    return tvm.transform.Sequential(phases, name="VtaPipeline")
