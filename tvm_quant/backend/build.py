"""`compile`: a backend's own Relax pipeline in front of `tvm.compile`."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax
from tvm.relax import VMExecutable
from tvm.target import Target

from tvm_quant.backend.cpu import cpu_pipeline
from tvm_quant.backend.target import AnyTarget, backend_of, resolve_target, runs_here
from tvm_quant.backend.vta.pipeline import vta_pipeline
from tvm_quant.errors import BackendError
from tvm_quant.ir.inline import inlined

Pipeline = Callable[..., tvm.transform.Pass]

# Kind of target: pipeline of (target, tune). Every other kind uses TVM's own.
BACKENDS: dict[str, Pipeline] = {"llvm": cpu_pipeline, "vta": vta_pipeline}


def compile(mod: tvm.IRModule, target: AnyTarget = "llvm", *, tune: bool = False) -> VMExecutable:
    """Compile a float or realized module so that it runs fast.

    Args:
        mod: Relax module. What `main` calls is compiled into it, as if the module had no other
            function; these are there to call, too.
        target: as TVM names it; a plain "llvm" means this machine with all its vector instructions,
            "vta" a VTA beside it (see `resolve_target`). Kernels for other kinds, such as cuda, are
            those of TVM's own schedules.
        tune: measure the few best register tiles of each convolution and matrix product on this
            machine instead of trusting the model of the CPU; takes about a second per kernel. What
            was measured is kept in `$TVM_QUANT_CACHE`, by default the user's folder for caches.

    Returns:
        An executable for `tvm.relax.VirtualMachine`; its `export_library("m.so")` writes a file
        that runs without tvm_quant; for "vta" it needs `import tvm_quant`, which runs the programs.

    Raises:
        BackendError: unknown target, or one for which this TVM makes no code; `tune` for a target
            that this machine cannot run.
    """
    return _build(mod, resolve_target(target), tune=tune, mode="compiled")


def compile_watched(mod: tvm.IRModule, target: AnyTarget = "llvm") -> VMExecutable:
    """As `compile`, but the virtual machine calls the kernels, where an instrument sees each call.

    The calls are interpreted. That costs a seventh of a microsecond each, which counts in small
    networks.
    """
    return _build(mod, resolve_target(target), tune=False, mode="bytecode")


def _build(mod: tvm.IRModule, target: Target, *, tune: bool, mode: str) -> VMExecutable:
    mod = inlined(mod)
    pipeline = BACKENDS.get(backend_of(target))
    if tune and (pipeline is None or not runs_here(target)):
        raise BackendError(
            f"tune=True measures kernels on this machine, which cannot run '{target}': compile "
            "there, or without tune."
        )
    if pipeline is None:
        return tvm.compile(mod, target)
    with _without_kernel_checks():
        return relax.build(mod, target, relax_pipeline=pipeline(target, tune=tune), exec_mode=mode)


def _without_kernel_checks() -> tvm.transform.PassContext:
    """The current context, less the checks of each kernel's arguments.

    The virtual machine checks the arguments of `main` and derives all others from them. The checks
    of kernels are two thirds of the machine code, and as much of the time to make it.
    """
    current = tvm.transform.PassContext.current()
    return tvm.transform.PassContext(
        opt_level=current.opt_level,
        required_pass=current.required_pass,
        disabled_pass=current.disabled_pass,
        instruments=current.instruments,
        config={**current.config, "tirx.disable_assert": True},
    )
