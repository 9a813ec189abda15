"""Small networks for the tests of the backend."""

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import IRModule, relax
from tvm.target import Target

from plain_tvm import build
from tvm_quant.backend import compile
from tvm_quant.ir import constant
from tvm_quant.op import requantize

R = relax.op


X86 = {"kind": "llvm", "mtriple": "x86_64-linux-gnu"}
ARM = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "generic"}

#: One target for each row of `ISAS`: (name, target, what the CPU needs in the kernel's words).
ISA_TARGETS = [
    ("avx512vnni", {**X86, "mcpu": "x86-64-v4", "mattr": ["+avx512vnni"]}, ["avx512_vnni"]),
    ("avx512", {**X86, "mcpu": "x86-64-v4"}, ["avx512bw", "avx512vl"]),
    ("avxvnni", {**X86, "mcpu": "x86-64-v3", "mattr": ["+avxvnni"]}, ["avx_vnni"]),
    ("avx2", {**X86, "mcpu": "x86-64-v3"}, ["avx2", "fma"]),
    ("sse2", {**X86, "mcpu": "x86-64"}, ["sse2"]),
    ("neon_i8mm", {**ARM, "mattr": ["+dotprod", "+i8mm"]}, ["aarch64", "asimddp", "i8mm"]),
    ("neon_dotprod", {**ARM, "mattr": ["+dotprod"]}, ["aarch64", "asimddp"]),
    ("neon", ARM, ["aarch64", "asimd"]),
]

#: Parametrizes a test by the targets that this CPU runs; the others are skipped.
runs_on = pytest.mark.parametrize(
    "target",
    [
        pytest.param(Target(target), id=name, marks=pytest.mark.isa(*features))
        for name, target, features in ISA_TARGETS
    ],
)


def run(mod: IRModule, *inputs: np.ndarray, target: str | Target = "llvm") -> list[np.ndarray]:
    """Results of `main` as our backend compiles it."""
    result = relax.VirtualMachine(compile(mod, target), tvm.cpu())["main"](
        *[tvm.runtime.tensor(np.asarray(x, order="C")) for x in inputs]
    )
    fields = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
    return [field.numpy() for field in fields]


def float_conv(shape: tuple[int, ...], weight: tuple[int, ...], **attrs: Any) -> IRModule:
    """conv + bias + relu with the float32 weight of shape `weight`; rank from `shape`."""
    rng = np.random.default_rng(0)
    kernel = rng.normal(size=weight).astype("float32")
    spatial = len(shape) - 2
    bias = rng.normal(size=(1, weight[0]) + (1,) * spatial).astype("float32")

    def body(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = getattr(R.nn, f"conv{spatial}d")(x, constant(kernel), **attrs)
        return R.nn.relu(builder.emit(R.add(builder.emit(y), constant(bias))))

    return build(body, x=shape)


def integer_conv(
    shape: tuple[int, ...],
    weight: tuple[int, ...],
    *,
    padding: int = 0,
    zero_point: int = 3,
    dtype: str = "uint8",
    reach: int = 127,
    **attrs: Any,
) -> IRModule:
    """A realized convolution: pad with the zero point, conv in int32, bias, requantize to uint8.

    `reach` is the largest magnitude of its weights.
    """
    rng = np.random.default_rng(0)
    kernel = rng.integers(-reach, reach + 1, weight).astype("int8")
    spatial = len(shape) - 2
    per_channel = (1, weight[0]) + (1,) * spatial
    bias = rng.integers(-9999, 9999, per_channel).astype("int32")
    # About one step of the result per standard deviation / 40 of the sum.
    multiplier = rng.uniform(0.5, 1, per_channel) * 40 / (5e3 * np.sqrt(np.prod(weight[1:])))

    def body(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        if padding:
            widths = [0, 0, 0, 0] + [padding] * 2 * spatial
            x = builder.emit(R.nn.pad(x, widths, "constant", float(zero_point)))
        conv = getattr(R.nn, f"conv{spatial}d")
        y = builder.emit(conv(x, constant(kernel), out_dtype="int32", **attrs))
        y = builder.emit(R.add(y, constant(bias)))
        return requantize(y, multiplier, 101, dtype="uint8", qmin=0, qmax=255)

    return build(body, x=(dtype, *shape))


def codes(shape: tuple[int, ...], dtype: str = "uint8") -> np.ndarray:
    """Random codes over the whole range of `dtype`."""
    info = np.iinfo(dtype)
    return np.random.default_rng(1).integers(info.min, info.max + 1, shape).astype(dtype)


def normal(shape: tuple[int, ...]) -> np.ndarray:
    """Random float32."""
    return np.random.default_rng(1).normal(size=shape).astype("float32")
