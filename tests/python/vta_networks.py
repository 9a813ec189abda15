"""Integer networks as Realize leaves them for VTA."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import IRModule, relax

import plain_tvm
from tvm_quant.backend import compile
from tvm_quant.ir import bindings, constant, op_name
from tvm_quant.op import RequantizeMode, requantize

R = relax.op
Emit = Callable[[relax.Expr], relax.Var]


def scaled(acc: relax.Expr, shift: Any, *, low: int = -127, high: int = 127) -> relax.Call:
    """The int8 codes of a sum, shifted to the right by `shift`, () or (C,)."""
    factor = 2.0 ** -np.asarray(shift, "float64")
    if factor.ndim:
        factor = factor.reshape(1, -1, *(1,) * (len(acc.ty.shape) - 2))
    mode = RequantizeMode.SHIFT
    return requantize(acc, factor, 0, dtype="int8", qmin=low, qmax=high, mode=mode)


def by_channel(values: Any, like: relax.Expr) -> relax.Expr:
    """An int32 constant along axis 1."""
    return constant(np.int32(values).reshape(1, -1, *(1,) * (len(like.ty.shape) - 2)))


def convolution(emit: Emit, x: relax.Expr, weight: np.ndarray, bias: Any, **attrs: Any):
    """The sum of a convolution and its bias."""
    acc = emit(R.nn.conv2d(x, constant(weight), out_dtype="int32", **attrs))
    return emit(R.add(acc, by_channel(bias, acc)))


def residual(emit: Emit, acc: relax.Expr, x: relax.Expr, shift: Any):
    """The sum and the codes `x` shifted to the left."""
    wide = emit(R.astype(x, "int32"))
    return emit(R.add(acc, emit(R.left_shift(wide, by_channel(shift, acc)))))


def weights(*shape: int, seed: int = 0, reach: int = 127) -> np.ndarray:
    """Random int8 weights."""
    return np.random.default_rng(seed).integers(-reach, reach + 1, shape).astype("int8")


def codes(*shape: int, seed: int = 0) -> np.ndarray:
    """Random int8 codes, all of them."""
    return np.random.default_rng(seed).integers(-128, 128, shape).astype("int8")


def build(body: Callable[..., Any], **inputs: tuple[int, ...]) -> IRModule:
    """A module of int8 inputs; `body` takes a function that emits, and the inputs."""
    typed = {name: ("int8", *shape) for name, shape in inputs.items()}
    return plain_tvm.build(lambda builder, *xs: body(builder.emit, *xs), **typed)


def operators(mod: IRModule) -> list[str]:
    """The operators of `main`, in order."""
    return [str(op_name(b.value)) for b in bindings(mod["main"]) if op_name(b.value)]


def assert_equal_everywhere(mod: IRModule, *others: IRModule, seed: int = 0) -> None:
    """All modules agree on random codes, on the lowest and on the highest ones.

    The first is built by TVM alone and for VTA, the others by our CPU pipeline.
    """
    shapes = [tuple(map(int, param.ty.shape)) for param in mod["main"].params]
    random = [codes(*shape, seed=seed + place) for place, shape in enumerate(shapes)]
    cases = [random, *([np.full(s, v, "int8") for s in shapes] for v in (-128, 127))]
    plain = relax.VirtualMachine(tvm.compile(mod, plain_tvm.QUICK), tvm.cpu())["main"]
    built = [compile(mod, "vta"), *map(compile, others)]
    machines = [relax.VirtualMachine(executable, tvm.cpu())["main"] for executable in built]
    for inputs in cases:
        arguments = [tvm.runtime.tensor(x) for x in inputs]
        expected = _fields(plain(*arguments))
        for machine in machines:
            for found, wanted in zip(_fields(machine(*arguments)), expected, strict=True):
                np.testing.assert_array_equal(found, wanted)


def _fields(result: Any) -> list[np.ndarray]:
    if isinstance(result, tvm.runtime.Tensor):
        return [result.numpy()]
    return [field.numpy() for field in result]
