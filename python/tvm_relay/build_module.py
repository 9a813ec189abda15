"""`relay.build`, what it returns, and `relay.create_executor`.

    lib = relay.build(mod, target="llvm", params=params)
    runner = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))

`tvm_quant.compile` does the work; kernels are those of this project's CPU backend.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import tvm
from tvm import IRModule
from tvm.runtime import Tensor

import tvm_quant
from tvm_quant.backend.machines import Machines
from tvm_quant.errors import UnsupportedError
from tvm_quant.ir.signature import main_function
from tvm_quant.transform import Prepare
from tvm_relay.expr import Expr
from tvm_relay.target import as_target
from tvm_relay.to_relax import to_relax

#: What `PassContext` was called before 2020.
build_config = tvm.transform.PassContext

Source: TypeAlias = Any  # a Relay function or module, or a Relax module


def build(
    mod: Source,
    target: Any = None,
    target_host: Any = None,
    executor: Any = None,
    runtime: Any = None,
    workspace_memory_pools: Any = None,
    constant_memory_pools: Any = None,
    params: Mapping[str, Any] | None = None,
    mod_name: str = "default",
) -> Library:
    """Compile a network.

    Args:
        mod: a Relay function or module, or a Relax module; it is not changed.
        target: as TVM takes it, or in the old form "llvm -mcpu=skylake"; None is the target of the
            enclosing `with tvm.target.Target(...)`, or this machine.
        target_host, executor, runtime, workspace_memory_pools, constant_memory_pools: accepted;
            they chose among runtimes that TVM no longer has.
        params: values for parameters of `main`; they become constants.
        mod_name: what the library's function is called.

    Raises:
        BackendError: unknown target.
        FrontendError: an operator without conversion, or a parameter that does not fit.
    """
    source = to_relax(mod)
    chosen = as_target(target)
    bound = _inference_form(source, params)
    return Library(tvm_quant.compile(bound, chosen), mod_name)


def _inference_form(mod: IRModule, params: Mapping[str, Any] | None) -> IRModule:
    names = {str(param.name) for param in main_function(mod).params}
    given = {name: value for name, value in (params or {}).items() if name in names}
    return tvm.transform.Sequential([Prepare(given)])(mod)


class Library:
    """What `build` returns: `lib["default"](device)` is ready for `GraphModule`.

    It unpacks into graph, library and parameters as programs before 2020 do; parameters are
    constants of the library, so the third is empty.
    """

    def __init__(self, executable: Any, name: str = "default"):
        self.executable = executable
        self.name = name

    def __getitem__(self, name: str) -> Callable[[Any], Machine]:
        if name != self.name:
            raise UnsupportedError(f"The library has the function '{self.name}', not '{name}'.")
        return lambda device: Machine(self.executable, device)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.get_graph_json(), self, self.get_params()))

    def get_graph_json(self) -> str:
        """A text that names the library's function; there is no graph at run time any more."""
        return json.dumps({"function": self.name})

    def get_params(self) -> dict[str, Tensor]:
        """No parameters: they are constants of the library."""
        return {}

    def get_lib(self) -> Any:
        """The compiled module."""
        return self.executable

    def export_library(self, file_name: str | Path, **options: Any) -> None:
        """Write a shared library that `tvm_relay.load_module` reads."""
        self.executable.export_library(str(file_name), **options)


class Machine:
    """A library on a device."""

    def __init__(self, executable: Any, device: Any):
        self.device = device
        self.machines = Machines(executable, device)
        count = int(self.machines["get_function_arity"]("main"))
        name = self.machines["get_function_param_name"]
        self.inputs = [str(name("main", index)) for index in range(count)]

    def __call__(self, *args: Tensor) -> list[Tensor]:
        """Results, tuples flattened."""
        return _flat(self.machines["main"](*args))


def load_module(path: str | Path) -> Library:
    """The library that `Library.export_library` wrote."""
    return Library(tvm.runtime.load_module(str(path)))


def create_executor(
    kind: str = "graph",
    mod: Source | None = None,
    device: Any = None,
    target: Any = None,
    params: Mapping[str, Any] | None = None,
) -> Executor:
    """Something that runs a module.

    Raises:
        UnsupportedError: no module, or a kind other than graph, vm, aot and debug.
    """
    if kind not in ("graph", "vm", "aot", "debug") or mod is None:
        raise UnsupportedError(
            f"create_executor(kind='{kind}', mod={mod!r}): expected a module, and one of the kinds "
            "graph, vm, aot and debug."
        )
    return Executor(mod, device or tvm.cpu(0), target, params)


class Executor:
    """Runs a module on arrays: `executor.evaluate()(x, y)`."""

    def __init__(self, mod: Source, device: Any, target: Any, params: Mapping[str, Any] | None):
        self.mod, self.device, self.target, self.params = mod, device, target, params

    def evaluate(self, expr: Expr | None = None) -> Callable[..., Any]:
        """A Python function of the network's inputs, by position or by name.

        Args:
            expr: another function than `main` of the module.
        """
        library = build(expr if expr is not None else self.mod, self.target, params=self.params)
        machine = library[library.name](self.device)

        def run(*args: Any, **named: Any) -> Any:
            values = {**dict(zip(machine.inputs, args, strict=False)), **named}
            found = machine(*(as_tensor(values[name], self.device) for name in machine.inputs))
            return found[0] if len(found) == 1 else found

        return run


def as_tensor(value: Any, device: Any) -> Tensor:
    """A tensor on a device, from a tensor or array."""
    array = value.numpy() if isinstance(value, Tensor) else value
    return tvm.runtime.tensor(array, device)


def _flat(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    return [tensor for field in result for tensor in _flat(field)]


__all__ = ["Library", "build", "build_config", "create_executor", "load_module"]
