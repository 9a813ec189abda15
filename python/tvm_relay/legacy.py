"""The names that TVM had while it had Relay, for one process.

`import tvm_relay` changes nothing in TVM. `install` does, for a script that says
`from tvm import relay`: it adds names, and lets two classes accept what they used to accept.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import tvm
import tvm.contrib
from tvm.target import Target

import tvm_relay
from tvm_relay import graph_executor
from tvm_relay.expr import Expr
from tvm_relay.module import Module
from tvm_relay.target import options

#: Names of modules as scripts import them: the module that stands there.
_MODULES: dict[str, Any] = {
    "tvm.relay": tvm_relay,
    "tvm.relay.analysis": tvm_relay.analysis,
    "tvm.relay.frontend": tvm_relay.frontend,
    "tvm.relay.op": tvm_relay.op,
    "tvm.relay.quantize": tvm_relay.quantize,
    "tvm.relay.transform": tvm_relay.transform,
    "tvm.contrib.graph_executor": graph_executor,
    "tvm.contrib.graph_runtime": graph_executor,
}


def install() -> None:
    """Add the names of old to `tvm`; twice is as good as once."""
    if hasattr(tvm, "relay"):
        return
    sys.modules.update({**_MODULES, "tvm.nd": _arrays()})
    for name in ("tvm.nd", *_MODULES):
        parent, _, child = name.rpartition(".")
        if parent in ("tvm", "tvm.contrib"):
            setattr(sys.modules[parent], child, sys.modules[name])
    tvm.gpu = tvm.cuda
    tvm.IRModule.from_expr = staticmethod(_from_expr(tvm.IRModule.from_expr))
    Target.__init__ = _old_targets(Target.__init__)
    tvm.runtime.load_module = _libraries(tvm.runtime.load_module)
    tvm.runtime.ndarray = sys.modules["tvm.nd"]


def _arrays() -> ModuleType:
    """`tvm.nd`: arrays on a device."""
    module = ModuleType("tvm.nd")
    module.array = _array  # type: ignore[attr-defined]
    module.empty = tvm.runtime.empty  # type: ignore[attr-defined]
    module.NDArray = tvm.runtime.Tensor  # type: ignore[attr-defined]
    return module


def _array(source: Any, device: Any = None, ctx: Any = None) -> Any:
    array = source.numpy() if isinstance(source, tvm.runtime.Tensor) else np.asarray(source)
    return tvm.runtime.tensor(array, device or ctx or tvm.cpu(0))


def _from_expr(today: Callable[..., Any]) -> Callable[..., Any]:
    def from_expr(expr: Any, functions: Any = None, *rest: Any) -> Any:
        if isinstance(expr, Expr):
            return Module.from_expr(expr, functions)
        return today(expr, functions, *rest)

    return from_expr


def _old_targets(today: Callable[..., None]) -> Callable[..., None]:
    def init(self: Any, target: Any, host: Any = None) -> None:
        if isinstance(target, str) and " -" in target:
            target = options(target)
        today(self, target, host)

    return init


def _libraries(today: Callable[..., Any]) -> Callable[..., Any]:
    """Networks load as what `relay.build` returned."""

    def load_module(path: Any, *args: Any) -> Any:
        module = today(path, *args)
        return tvm_relay.build_module.Library(module) if _is_network(module) else module

    return load_module


def _is_network(module: Any) -> bool:
    return str(getattr(module, "kind", "")) == "relax.VMExecutable"
