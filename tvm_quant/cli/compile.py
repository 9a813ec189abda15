"""`tvm-quant compile`: from a `.tvmq` file to a library that TVM's runtime loads."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from tvm_quant.artifact import Artifact
from tvm_quant.backend import compile as compile_module
from tvm_quant.backend import resolve_target
from tvm_quant.backend.cpu import isa_of
from tvm_quant.backend.target import backend_of
from tvm_quant.cli import options
from tvm_quant.cli.guard import stderr, stdout
from tvm_quant.errors import ArtifactError
from tvm_quant.hardware import HARDWARE


def compile_artifact(
    artifact: options.Artifact,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Library to write (.so).", show_default=False)
    ],
    target: options.Target = "llvm",
    tune: Annotated[
        bool, typer.Option("--tune", help="Measure the best kernels on this machine.")
    ] = False,
) -> None:
    """Compile a quantized network into a shared library.

    [bold]Example:[/]  tvm-quant compile model.tvmq -o model.so --target "llvm -mcpu=cascadelake"
    """
    _check_folder(output)
    loaded = Artifact.load(artifact)
    with stderr().status(f"compiling for {target}"):
        executable = compile_module(loaded.module, target, tune=tune)
        with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as folder:
            built = Path(folder) / (output.name if output.suffix else f"{output.name}.so")
            executable.export_library(str(built))
            built.replace(output)
    stdout().print(f"wrote {output} ({output.stat().st_size / 1000:.0f} kB)")
    row = _hardware_for(target)
    if row not in (None, loaded.config.hardware):
        stdout().print(
            f"quantized for {loaded.config.hardware}; for this target there is "
            f"tvm-quant quantize --hardware {row}"
        )
    stdout().print(
        f"load it with tvm.relax.VirtualMachine(tvm.runtime.load_module('{output}'), tvm.cpu())",
        style="dim",
    )


def _hardware_for(target: str) -> str | None:
    """The hardware row for a CPU or a VTA; None for other targets."""
    resolved = resolve_target(target)
    backend = backend_of(resolved)
    if backend in HARDWARE:  # a device with a row of its own
        return backend
    return isa_of(resolved).hardware if backend == "llvm" else None


def _check_folder(output: Path) -> None:
    if not output.parent.is_dir():
        raise ArtifactError(f"cannot write {output}: there is no folder {output.parent}")
