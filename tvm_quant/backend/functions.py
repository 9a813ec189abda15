"""Running the functions of a module on values that stay with the virtual machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax

from tvm_quant.backend.build import compile

Array = npt.NDArray[Any]


class Functions:
    """The compiled functions of a module, on this machine's CPU.

    Values are tensors, tuples and shapes of TVM, or NumPy arrays; nothing checks that they fit but
    the virtual machine.

    Args:
        mod: Relax module.
    """

    def __init__(self, mod: tvm.IRModule):
        self._device = tvm.cpu()
        self._machine = relax.VirtualMachine(compile(mod), self._device)

    def call(self, name: str, *values: Any) -> list[Any]:
        """Fields of the tuple that a function returns."""
        return list(self._machine[name](*[self._value(value) for value in values]))

    def arrays(self, value: Any) -> list[Array]:
        """The tensors in a value, depth first."""
        if isinstance(value, np.ndarray):
            return [value]
        if isinstance(value, tvm.runtime.Tensor):
            return [value.numpy()]
        if isinstance(value, tvm.runtime.ShapeTuple):
            return []
        return [array for field in value for array in self.arrays(field)]

    def _value(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return tvm.runtime.tensor(np.asarray(value, order="C"), self._device)
        return value
