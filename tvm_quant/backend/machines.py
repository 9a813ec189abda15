"""A virtual machine for each thread that runs an executable."""

from __future__ import annotations

import threading
from typing import Any

import tvm
from tvm import relax

# A new machine notes in the executable where each constant lies, without a lock of its own: two
# that open at once crash the process.
_opening = threading.Lock()


class Machines:
    """The virtual machines of one executable; a machine is not thread-safe.

    Args:
        executable: what `tvm.compile` returns, or a loaded library.
        device: where to run.
    """

    def __init__(self, executable: Any, device: tvm.runtime.Device):
        self.executable = executable
        self.device = device
        self._local = threading.local()

    def __getitem__(self, function: str) -> Any:
        """A function of the machine of this thread."""
        functions = self._local.__dict__.setdefault("functions", {})
        if function not in functions:
            functions[function] = self._machine()[function]
        return functions[function]

    def _machine(self) -> Any:
        if not hasattr(self._local, "machine"):
            with _opening:
                self._local.machine = relax.VirtualMachine(self.executable, self.device)
        return self._local.machine
