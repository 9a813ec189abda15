"""Running the profiled graph in whatever thread or process an executor chooses."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import IRModule

from tvm_quant.backend import compile
from tvm_quant.backend.library import Latest, exported, loaded
from tvm_quant.backend.machines import Machines
from tvm_quant.ir import io_signature

Array = npt.NDArray[Any]


class Worker:
    """The compiled graph. Each thread has a virtual machine; each process loads the library once.

    Args:
        mod: its `main` returns a tuple of tensors.
        target: a CPU target, as for `tvm_quant.compile`.
    """

    def __init__(self, mod: IRModule, target: str = "llvm"):
        names = [info.name for info in io_signature(mod)]
        self._open(compile(mod, target), names)

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Outputs for the inputs of one batch."""
        if os.getpid() == self._process:
            return self._run(inputs)
        # A forked process has none of TVM's threads; a new thread starts new ones.
        results: list[list[Array]] = []
        thread = threading.Thread(target=lambda: results.append(self._run(inputs)))
        thread.start()
        thread.join()
        return results[0]

    def _run(self, inputs: Mapping[str, Array]) -> list[Array]:
        tensors = [tvm.runtime.tensor(np.asarray(inputs[name], order="C")) for name in self._names]
        return [np.from_dlpack(result) for result in self._machines["main"](*tensors)]

    def _open(self, executable: Any, names: list[str]) -> None:
        self._names = names
        self._library: bytes | None = None
        self._process = os.getpid()
        self._machines = Machines(executable, tvm.cpu())

    def __reduce__(self) -> tuple[Any, ...]:
        if self._library is None:
            self._library = exported(self._machines.executable)
        return _restore, (self._library, self._names)

    @classmethod
    def from_library(cls, library: bytes, names: list[str]) -> Worker:
        """A worker that runs an exported library."""
        worker = cls.__new__(cls)
        worker._open(loaded(library), names)
        worker._library = library
        return worker


_latest = Latest[Worker]()


def _restore(library: bytes, names: list[str]) -> Worker:
    return _latest.get(library, lambda sent: Worker.from_library(sent, names))
