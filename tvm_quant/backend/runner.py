"""Running a module on NumPy arrays."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax

from tvm_quant.backend.build import compile
from tvm_quant.backend.library import exported, loaded
from tvm_quant.backend.machines import Machines
from tvm_quant.backend.target import AnyTarget, resolve_target
from tvm_quant.backend.tensors import Inputs, arrays_of
from tvm_quant.errors import BackendError
from tvm_quant.ir import TensorInfo, io_signature

Array = npt.NDArray[Any]


class Runner:
    """A compiled module that takes and gives NumPy arrays.

    Threads may share it: each has a virtual machine of its own. It can be pickled, for instance
    into the workers of a process pool: the pickle holds the compiled shared library, so that a
    worker runs the very same code and does not compile.

    Args:
        mod: Relax module; its function `main` is run.
        target: as for `tvm_quant.compile`.

    Raises:
        BackendError: unknown target, or none of its devices is present.
    """

    def __init__(self, mod: tvm.IRModule, target: AnyTarget = "llvm"):
        self.signature: list[TensorInfo] = io_signature(mod)
        resolved = resolve_target(target)
        self._device = (int(resolved.get_target_device_type()), 0)
        self._library: bytes | None = None  # once it is exported
        self._load(compile(mod, resolved))

    def run(self, inputs: Mapping[str, npt.ArrayLike]) -> list[Array]:
        """Results of one execution; tuples are flattened, depth first.

        Args:
            inputs: {input name: array}; dtypes and static dimensions must be those of the module.

        Raises:
            BackendError: a missing or unknown name, a wrong shape or dtype.
        """
        return arrays_of(self._main(*self._inputs.filled(self._arrays(inputs))))

    def latency_ms(self, inputs: Mapping[str, npt.ArrayLike], *, repeats: int = 20) -> list[float]:
        """Wall time of each of `repeats` executions in milliseconds, after one to warm up."""
        call = self.prepared(inputs)
        times = []
        for _ in range(repeats + 1):
            start = time.perf_counter()
            call()
            self._machines.device.sync()
            times.append((time.perf_counter() - start) * 1e3)
        return times[1:]

    def prepared(self, inputs: Mapping[str, npt.ArrayLike]) -> Callable[[], object]:
        """A function that runs on `inputs`, which are copied to where they are needed now.

        It belongs to this thread, and to the time before the next `run`. It does not wait for a
        device that is not the CPU.

        Raises:
            BackendError: as `run`.
        """
        return partial(self._main, *self._inputs.filled(self._arrays(inputs)))

    def _arrays(self, inputs: Mapping[str, npt.ArrayLike]) -> list[Array]:
        """The inputs in order, checked."""
        self._check_names(inputs)
        return [_checked(info, np.asarray(inputs[info.name])) for info in self.signature]

    def _check_names(self, inputs: Mapping[str, npt.ArrayLike]) -> None:
        expected = {info.name for info in self.signature}
        if inputs.keys() == expected:
            return
        missing, unknown = sorted(expected - set(inputs)), sorted(set(inputs) - expected)
        raise BackendError(
            f"Inputs {sorted(expected)} are needed, got {sorted(inputs)}: "
            f"missing {missing}, unknown {unknown}. Name every input of the module."
        )

    def _load(self, executable: relax.VMExecutable) -> None:
        device = tvm.device(*self._device)
        if not device.exist:
            raise BackendError(
                f"No device {device} is present to run on; compile only, with "
                "`tvm_quant.compile`, or choose a target of this machine."
            )
        self._machines = Machines(executable, device)
        self._inputs = Inputs(device)

    @property
    def _main(self) -> Any:
        return self._machines["main"]

    def __getstate__(self) -> dict[str, Any]:
        self._library = self._library or exported(self._machines.executable)
        return {"signature": self.signature, "device": self._device, "library": self._library}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.signature, self._device = state["signature"], state["device"]
        self._library = state["library"]
        self._load(loaded(self._library))


def median_latency_ms(
    runners: Mapping[str, Runner], inputs: Mapping[str, npt.ArrayLike], *, rounds: int = 10
) -> dict[str, float]:
    """Median latency of each of several modules on the same inputs, measured in turns.

    Turns share whatever else the machine does, so that ratios hold where absolute times do not.
    """
    times: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(rounds):
        for name, runner in runners.items():
            times[name] += runner.latency_ms(inputs, repeats=1)
    return {name: statistics.median(values) for name, values in times.items()}


def _checked(info: TensorInfo, array: Array) -> Array:
    if array.shape != info.shape and not _fits(array.shape, info.shape):
        expected = tuple("any" if dim is None else dim for dim in info.shape)
        raise BackendError(
            f"Input '{info.name}' has shape {array.shape}, expected {expected}: "
            "reshape it, or import the model with other shapes."
        )
    if array.dtype != info.dtype:
        raise BackendError(
            f"Input '{info.name}' has dtype {array.dtype}, expected {info.dtype}: "
            f'convert it with .astype("{info.dtype}").'
        )
    return np.asarray(array, order="C")


def _fits(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    return len(shape) == len(expected) and all(
        dim in (None, size) for dim, size in zip(expected, shape, strict=True)
    )
