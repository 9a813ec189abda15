"""`tvm-quant doctor`: whether this machine is set up, and what its CPU is used for."""

from __future__ import annotations

import os
from collections.abc import Iterable

import typer
from rich.console import Console
from rich.table import Table
from tvm.runtime import num_threads
from tvm.target.codegen import llvm_get_cpu_features, llvm_get_system_cpu, llvm_version_major

from tvm_quant._pins import PINS
from tvm_quant.artifact.provenance import installed_versions
from tvm_quant.backend import host_target
from tvm_quant.backend.cpu import ISAS, isa_of
from tvm_quant.backend.cpu.check import KernelCheck, check_kernels
from tvm_quant.cli.guard import USER_ERROR, stderr, stdout


def doctor() -> None:
    """Show versions and the CPU's instructions, and check every kernel against NumPy.

    Takes a few seconds. The exit code is 1 if a kernel is wrong.

    [bold]Example:[/]  tvm-quant doctor
    """
    console = stdout()
    for name, fact in _facts().items():
        console.print(f"[bold]{name:14s}[/]{fact}", soft_wrap=True)
    console.print("\n[bold]Instruction sets[/], the first that the CPU has is used")
    console.print(_instruction_sets())
    with stderr().status("checking kernels ..."):
        checks = list(check_kernels())
    console.print("\n[bold]Kernels[/]")
    console.print(_kernels(checks))
    _conclude(console, checks)


def _facts() -> dict[str, str]:
    versions = ", ".join(f"{name} {version}" for name, version in installed_versions().items())
    pins = ", ".join(f"{name}=={version}" for name, version in PINS.items())
    limit = os.environ.get("TVM_NUM_THREADS")
    return {
        "versions": versions,
        "pins": f"{pins}: met",  # or the import would have failed
        "LLVM": str(llvm_version_major()),
        "CPU": str(llvm_get_system_cpu()),
        "hardware": f"{isa_of(host_target()).hardware}: the row to quantize for",
        "threads": f"{num_threads()} of {os.cpu_count()} cores"
        + (f", by TVM_NUM_THREADS={limit}" if limit else ""),
    }


def _instruction_sets() -> Table:
    features = {str(name) for name in llvm_get_cpu_features(host_target())}
    chosen = isa_of(host_target())
    table = Table("", "vectors", "8-bit products", "needs", box=None, pad_edge=False)
    for isa in ISAS:
        missing = sorted(isa.features - features)
        mark = "used" if isa is chosen else "-" if missing else "present"
        table.add_row(
            f"{isa.name}: {mark}",
            f"{isa.registers} of {isa.vector_bits} bits",
            isa.dots[0].instruction if isa.dots else "vectorized by LLVM",
            ", ".join(sorted(isa.features)) + (f" (lacks {', '.join(missing)})" if missing else ""),
        )
    return table


def _kernels(checks: Iterable[KernelCheck]) -> Table:
    table = Table("layer", "data", "instruction", "equals NumPy", box=None, pad_edge=False)
    table.add_column("GOPS", justify="right")
    for check in checks:
        verdict = "yes" if check.passed else f"[red]no: {check.differing} of {check.elements}[/]"
        layer = check.layer
        table.add_row(layer.name, layer.dtype, check.instruction, verdict, f"{check.gops:.0f}")
    return table


def _conclude(console: Console, checks: Iterable[KernelCheck]) -> None:
    wrong = [f"{check.layer.name} of {check.layer.dtype}" for check in checks if not check.passed]
    if wrong:
        stderr().print(
            f"error: {', '.join(wrong)}: wrong results on this CPU. Compile for fewer features, "
            'for example {"kind": "llvm", "mcpu": "x86-64"}, and report it with this output.'
        )
        raise typer.Exit(USER_ERROR)
    console.print("\nAll kernels equal NumPy.")
