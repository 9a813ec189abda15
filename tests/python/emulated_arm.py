"""Runs modules that are compiled for AArch64 on any machine, under QEMU.

The virtual machine of Relax runs here; each call of a kernel runs in an emulated process, where
`emulated_arm.c` takes the place of TVM's runtime.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import IRModule, relax
from tvm.target import Target

from tvm_quant.backend.build import compile_watched

COMPILER = "aarch64-linux-gnu-gcc"
DISASSEMBLER = "aarch64-linux-gnu-objdump"
EMULATOR = "qemu-aarch64"
PACKAGES = "qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
NEWEST_CPU = "cortex-a76"  # of those that tests name; "max" is always there
CODES = {"int": 0, "uint": 1, "float": 2}  # DLPack's
LIMIT_S = 120


@functools.cache
def missing() -> str:
    """What has to be installed before anything can be emulated here; empty if nothing."""
    if not all(map(shutil.which, (COMPILER, DISASSEMBLER, EMULATOR))):
        return f"needs QEMU and a cross compiler: apt-get install {PACKAGES}"
    command = [EMULATOR, "-cpu", "help"]
    known = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return "" if NEWEST_CPU in known else f"needs QEMU 7.2 or later, which knows {NEWEST_CPU}"


class EmulatedArm:
    """A module for AArch64 whose kernels run under QEMU.

    Args:
        mod: Relax module.
        target: an AArch64 target.
        cpu: the CPU that QEMU is; instructions that it lacks end the process.
        folder: for what is compiled.

    Attributes:
        instructions: mnemonics of all kernels, disassembled.
    """

    def __init__(self, mod: IRModule, target: Target, cpu: str, folder: Path):
        executable = compile_watched(mod, target)
        (library,) = executable.mod.imports
        kernels, program = folder / "kernels.o", folder / "kernels"
        library.write_to_file(str(kernels), "o")
        listing = _output(DISASSEMBLER, "--disassemble", "--no-show-raw-insn", kernels).decode()
        self.instructions = set(re.findall(r"^ +[0-9a-f]+:\t(\S+)", listing, re.MULTILINE))
        names = re.findall(r"<__tvm_ffi_(\w+)>:", listing)
        _link(kernels, names, program)
        self._folder = folder  # QEMU leaves its core dumps there
        self._command = [EMULATOR, "-cpu", cpu, program]
        executable.mod.clear_imports()
        self._main = _machine(executable, {n: functools.partial(self._call, n) for n in names})

    def run(self, *inputs: np.ndarray) -> list[np.ndarray]:
        """Results of `main`, a tuple's fields one by one."""
        result = self._main(*[tvm.runtime.tensor(np.asarray(x, order="C")) for x in inputs])
        fields = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        return [field.numpy() for field in fields]

    def _call(self, kernel: str, *tensors: Any) -> None:
        arrays = [tensor.numpy() for tensor in tensors]
        before = b"".join(map(_argument, arrays))
        after = _output(*self._command, kernel, input=before, cwd=self._folder)
        assert len(after) == sum(array.nbytes for array in arrays)
        for tensor, array in zip(tensors, arrays, strict=True):
            own, after = after[: array.nbytes], after[array.nbytes :]
            tensor.copyfrom(np.frombuffer(own, array.dtype).reshape(array.shape))


def _link(kernels: Path, names: list[str], program: Path) -> None:
    libraries = (tvm.libinfo, tvm_ffi.libinfo)
    headers = [library.find_include_path() for library in libraries]
    headers.append(tvm_ffi.libinfo.find_dlpack_include_path())
    _output(
        *(COMPILER, "-static", "-o", program),
        *(f"-I{path}" for path in headers),
        f"-DKERNELS={' '.join(f'X({name})' for name in names)}",
        *(Path(__file__).with_suffix(".c"), kernels, "-lm"),
    )


def _machine(executable: relax.VMExecutable, kernels: dict[str, Callable[..., None]]) -> Any:
    """`main` of a virtual machine, which looks its kernels up once, when it is made."""
    for name, kernel in kernels.items():
        tvm_ffi.register_global_func(name, kernel)
    try:
        return relax.VirtualMachine(executable, tvm.cpu())["main"]
    finally:
        for name in kernels:
            tvm_ffi.registry.remove_global_func(name)


def _argument(array: np.ndarray) -> bytes:
    kind, bits = re.fullmatch(r"([a-z]+)(\d+)", str(array.dtype)).groups()
    head = np.array([CODES[kind], int(bits), array.ndim, *array.shape], "int64")
    return head.tobytes() + array.tobytes()


def _output(*command: str | Path, **options: Any) -> bytes:
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=LIMIT_S, **options)
    return done.stdout
