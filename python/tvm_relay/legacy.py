"""The names that TVM had while it had Relay, for one process.

`import tvm_relay` changes nothing in TVM. `install` does, for a script that says
`from tvm import relay`: it adds names, and lets a few functions accept what they used to accept.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import tvm
import tvm.contrib
import tvm.support.utils
from tvm.target import Target

import tvm_relay
from tvm_relay import build_module, expr, gone, graph_executor, namespaces, testing, text, ty
from tvm_relay.expr import Expr
from tvm_relay.module import Module
from tvm_relay.target import options


def install() -> None:
    """Add the names of old to `tvm`; twice is as good as once."""
    if hasattr(tvm, "relay"):
        return
    modules = {**_MODULES, "tvm.nd": _arrays(), "tvm.parser": _parser()}
    sys.modules.update(modules)
    for name, module in modules.items():
        parent, _, child = name.rpartition(".")
        if not parent.startswith("tvm.relay"):
            setattr(sys.modules[parent], child, module)
    tvm.gpu = tvm.cuda
    tvm.runtime.ndarray = tvm.nd
    tvm.runtime.Tensor.asnumpy = tvm.runtime.Tensor.numpy
    tvm.relax.Function.type_params = ()  # scripts hand them on to relay.Function
    for owner, name, adapt in _ADAPTED:
        setattr(owner, name, adapt(getattr(owner, name)))
    tvm.context = tvm.device
    gone.install()


#: Names of modules as scripts import them: what stands there.
_MODULES: dict[str, Any] = {
    "tvm.contrib.graph_executor": graph_executor,
    "tvm.contrib.graph_runtime": graph_executor,
    "tvm.contrib.utils": tvm.support.utils,
    "tvm.contrib.util": tvm.support.utils,
    "tvm.relay": tvm_relay,
    "tvm.relay.analysis": tvm_relay.analysis,
    "tvm.relay.build_module": build_module,
    "tvm.relay.expr": expr,
    "tvm.relay.frontend": tvm_relay.frontend,
    "tvm.relay.op": tvm_relay.op,
    "tvm.relay.op.annotation": namespaces.annotation,
    "tvm.relay.op.image": namespaces.image,
    "tvm.relay.op.nn": namespaces.nn,
    "tvm.relay.qnn": namespaces.qnn,
    "tvm.relay.qnn.op": namespaces.qnn.op,
    "tvm.relay.quantize": tvm_relay.quantize,
    "tvm.relay.testing": testing,
    "tvm.relay.testing.init": testing.init,
    "tvm.relay.testing.layers": testing.layers,
    **{f"tvm.relay.testing.{name}": network for name, network in testing.NETWORKS.items()},
    "tvm.relay.transform": tvm_relay.transform,
    "tvm.relay.ty": ty,
}


def _arrays() -> ModuleType:
    """`tvm.nd`: arrays on a device."""
    module = ModuleType("tvm.nd")
    module.array = _array  # type: ignore[attr-defined]
    module.empty = tvm.runtime.empty  # type: ignore[attr-defined]
    module.NDArray = tvm.runtime.Tensor  # type: ignore[attr-defined]
    return module


def _array(arr: Any, device: Any = None, ctx: Any = None) -> Any:
    return build_module.as_tensor(np.asarray(expr.as_array(arr)), device or ctx or tvm.cpu(0))


def _parser() -> ModuleType:
    """`tvm.parser`: Relay's text format."""
    module = ModuleType("tvm.parser")
    module.parse = text.parse  # type: ignore[attr-defined]
    module.parse_expr = text.parse_expr  # type: ignore[attr-defined]
    module.fromtext = text.fromtext  # type: ignore[attr-defined]
    return module


# Functions of today that accept what those of old did ------------------------------------------


def _from_expr(today: Callable[..., Any]) -> Any:
    """Relay functions become a `Module`."""

    def from_expr(expr: Any, functions: Any = None, *rest: Any) -> Any:
        if isinstance(expr, Expr):
            return Module.from_expr(expr, functions)
        return today(expr, functions, *rest)

    return staticmethod(from_expr)


def _of_functions(today: Callable[..., Any]) -> Any:
    """Relay functions make a `Module`: `IRModule({relay.GlobalVar("main"): function})`."""

    def new(cls: type, functions: Any = None, *_rest: Any, **_named: Any) -> Any:
        if isinstance(functions, dict) and any(isinstance(f, Expr) for f in functions.values()):
            return Module(functions)
        return today(cls)

    return staticmethod(new)


def _old_devices(today: Callable[..., Any]) -> Callable[..., Any]:
    """Devices may have the name of a target, options included."""

    def device(name: str, index: int = 0) -> Any:
        kind = name.split()[0]
        return today("cpu" if kind == "llvm" else kind, index)

    return device


def _old_targets(today: Callable[..., None]) -> Callable[..., None]:
    """Targets may be text with options."""

    def init(self: Any, target: Any, host: Any = None) -> None:
        if isinstance(target, str) and " -" in target:
            target = options(target)
        today(self, target, host)

    return init


def _old_settings(today: Callable[..., None]) -> Callable[..., None]:
    """Settings of Relay's own passes are ignored: those passes are gone."""

    def init(self: Any, *args: Any, config: Any = None, **named: Any) -> None:
        known = {k: v for k, v in (config or {}).items() if not k.startswith("relay.")}
        today(self, *args, config=known or None, **named)

    return init


def _libraries(today: Callable[..., Any]) -> Callable[..., Any]:
    """Networks load as what `relay.build` returned."""

    def load_module(path: Any, *args: Any) -> Any:
        module = today(path, *args)
        return build_module.Library(module) if _is_network(module) else module

    return load_module


def _is_network(module: Any) -> bool:
    return bool(module.implements_function("vm_load_executable"))


#: Where a function of today stands, its name, and what makes the function of old of it.
_ADAPTED: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = (
    (tvm.IRModule, "__new__", _of_functions),
    (tvm.IRModule, "from_expr", _from_expr),
    (tvm, "device", _old_devices),
    (Target, "__init__", _old_targets),
    (tvm.transform.PassContext, "__init__", _old_settings),
    (tvm.runtime, "load_module", _libraries),
)
