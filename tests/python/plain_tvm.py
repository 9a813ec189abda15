"""Modules made and run with TVM alone: no pass, no schedule of ours."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import IRModule, relax

#: LLVM without optimization: the same arithmetic, compiled eight times faster.
QUICK = tvm.target.Target({"kind": "llvm", "opt-level": 0})

Body = Callable[..., Any]


def build(body: Body, **inputs: tuple[Any, ...]) -> IRModule:
    """A module whose `main` returns `body(builder, *inputs)`.

    Args:
        body: emits bindings; returns an expression, or a tuple of them.
        inputs: {name: shape}, or {name: (dtype, *shape)}; float32 where no dtype is given.
    """
    builder = relax.BlockBuilder()
    params = [relax.Var(name, _type(shape)) for name, shape in inputs.items()]
    with builder.function("main", params):
        with builder.dataflow():
            result = body(builder, *params)
            if isinstance(result, tuple):
                result = relax.Tuple(list(result))
            result = builder.emit_output(result, "out")
        builder.emit_func_output(result)
    return builder.get()


def run(mod: IRModule, *inputs: np.ndarray) -> list[np.ndarray]:
    """Results of `main` on the unscheduled llvm build, a tuple's fields one by one."""
    machine = relax.VirtualMachine(tvm.compile(mod, QUICK), tvm.cpu())
    result = machine["main"](*[tvm.runtime.tensor(np.asarray(x, order="C")) for x in inputs])
    fields = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
    return [field.numpy() for field in fields]


def run_one(mod: IRModule, *inputs: np.ndarray) -> np.ndarray:
    """The only result of `main`."""
    (result,) = run(mod, *inputs)
    return result


def _type(shape: tuple[Any, ...]) -> relax.TensorType:
    if shape and isinstance(shape[0], str):
        return relax.TensorType(shape[1:], shape[0])
    return relax.TensorType(shape, "float32")
