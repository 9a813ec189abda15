"""Running the functions of a module on values that stay with the virtual machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import tvm

from tvm_quant.backend.build import compile
from tvm_quant.backend.library import Latest, exported, loaded
from tvm_quant.backend.machines import Machines
from tvm_quant.backend.tensors import arrays_of

Array = npt.NDArray[Any]


class Functions:
    """The compiled functions of a module, on this machine's CPU.

    Values are tensors, tuples and shapes of TVM, or NumPy arrays; nothing checks that they fit but
    the virtual machine. Each thread has a virtual machine of its own. It can be pickled: a process
    loads the compiled library once, however often it is sent there.

    Args:
        mod: Relax module.
    """

    def __init__(self, mod: tvm.IRModule):
        self._open(compile(mod))
        self._library: bytes | None = None  # once it is exported

    def call(self, name: str, *values: Any) -> list[Any]:
        """Fields of the tuple that a function returns."""
        return list(self._machines[name](*[self._value(value) for value in values]))

    def arrays(self, value: Any) -> list[Array]:
        """The tensors in a value, depth first."""
        return arrays_of(value)

    def _value(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return tvm.runtime.tensor(np.asarray(value, order="C"), self._machines.device)
        return value

    def _open(self, executable: Any) -> None:
        self._machines = Machines(executable, tvm.cpu())

    def __reduce__(self) -> tuple[Any, ...]:
        if self._library is None:
            self._library = exported(self._machines.executable)
        return _restored, (self._library,)


_latest = Latest[Functions]()


def _restored(library: bytes) -> Functions:
    return _latest.get(library, _opened)


def _opened(library: bytes) -> Functions:
    functions = Functions.__new__(Functions)
    functions._open(loaded(library))
    functions._library = library
    return functions
