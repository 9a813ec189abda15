"""`graph_executor`: set inputs by name, run, read outputs; on the machine that `build` made."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm.runtime import Tensor

from tvm_quant.errors import BackendError
from tvm_relay.build_module import Library, Machine, as_tensor
from tvm_relay.param_dict import load_param_dict


def create(_graph_json: str, library: Library, device: Any) -> GraphModule:
    """As programs write that unpack `graph, lib, params = relay.build(...)`."""
    return GraphModule(library[library.name](device))


@dataclass(frozen=True)
class BenchmarkResult:
    """Seconds a run, over several repeats."""

    results: tuple[float, ...]

    mean = property(lambda self: float(np.mean(self.results)))
    median = property(lambda self: float(np.median(self.results)))
    min = property(lambda self: float(np.min(self.results)))
    max = property(lambda self: float(np.max(self.results)))
    std = property(lambda self: float(np.std(self.results)))

    def __repr__(self) -> str:
        return f"mean {self.mean * 1e3:.4f} ms, median {self.median * 1e3:.4f} ms"


class GraphModule:
    """A network whose inputs stay set from run to run.

    Args:
        machine: what `lib["default"](device)` returns.
    """

    def __init__(self, machine: Machine):
        self.machine = machine
        self.module = self
        self._values: dict[str, Tensor] = {}
        self._outputs: list[Tensor] = []

    def set_input(self, key: str | int | None = None, value: Any = None, **params: Any) -> None:
        """Set one input by name or index, or several by name; what became a constant is ignored.

        Raises:
            BackendError: an input that the network does not have.
        """
        if key is not None:
            name = self.machine.inputs[key] if isinstance(key, int) else str(key)
            if name not in self.machine.inputs:
                raise BackendError(f"No input '{name}'; the network has {self.machine.inputs}.")
            params = {**params, name: value}
        for name in set(params) & set(self.machine.inputs):
            self._values[name] = as_tensor(params[name], self.machine.device)

    def run(self, **inputs: Any) -> None:
        """Compute the outputs.

        Raises:
            BackendError: an input that was never set.
        """
        self.set_input(**inputs)
        missing = [name for name in self.machine.inputs if name not in self._values]
        if missing:
            raise BackendError(f"Inputs {missing} are not set: call set_input first.")
        self._outputs = self.machine(*(self._values[name] for name in self.machine.inputs))

    def get_output(self, index: int, out: Tensor | None = None) -> Tensor:
        """An output of the last run.

        Raises:
            BackendError: nothing ran yet, or there is no such output.
        """
        if not 0 <= index < len(self._outputs):
            raise BackendError(
                f"Output {index} of {len(self._outputs)}: call run first, and count from 0."
            )
        return self._outputs[index] if out is None else self._outputs[index].copyto(out)

    def get_num_outputs(self) -> int:
        """Number of outputs; runs the network where that is not known yet."""
        if not self._outputs:
            self.run()
        return len(self._outputs)

    def get_num_inputs(self) -> int:
        """Number of inputs; parameters that became constants are none."""
        return len(self.machine.inputs)

    def get_input(self, index: str | int) -> Tensor:
        """An input as it was set."""
        return self._values[self.machine.inputs[index] if isinstance(index, int) else index]

    def get_input_index(self, name: str) -> int:
        """Index of an input, -1 for a name that is none."""
        return self.machine.inputs.index(name) if name in self.machine.inputs else -1

    def load_params(self, params: bytes) -> None:
        """Set inputs from what `save_param_dict` wrote."""
        self.set_input(**load_param_dict(params))

    def benchmark(
        self,
        device: Any = None,
        func_name: str = "run",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: float | None = None,
        end_to_end: bool = False,
        **inputs: Any,
    ) -> BenchmarkResult:
        """Mean time of `number` runs, `repeat` times, after one to warm up."""
        self.set_input(**inputs)
        return self.time_evaluator(func_name, device, number, repeat)()

    def time_evaluator(
        self, _name: str, _device: Any = None, number: int = 10, repeat: int = 1, **_options: Any
    ) -> Callable[[], BenchmarkResult]:
        """A function that measures the network."""

        def measure() -> BenchmarkResult:
            self.run()
            return BenchmarkResult(tuple(self._mean_of(number) for _ in range(repeat)))

        return measure

    def _mean_of(self, number: int) -> float:
        start = time.perf_counter()
        for _ in range(number):
            self.run()
        self.machine.device.sync()
        return (time.perf_counter() - start) / number
