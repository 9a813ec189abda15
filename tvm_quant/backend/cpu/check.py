"""Checking the kernels on this machine: each computes a small layer, and so does NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import IRModule, relax
from tvm.target import Target

from tvm_quant.backend.cpu.contraction import Window
from tvm_quant.backend.cpu.isa import Dot, Isa, isa_of
from tvm_quant.backend.cpu.winograd import Plan, plan
from tvm_quant.backend.runner import Runner
from tvm_quant.backend.target import host_target
from tvm_quant.ir import constant
from tvm_quant.op import requantize, requantize_numpy

Array = npt.NDArray[Any]

ROUNDS = 5
FLOAT_TOLERANCE = 1e-4  # of the largest result: sums in another order
OUTPUT: Any = {"dtype": "uint8", "qmin": 0, "qmax": 255}


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A square convolution; a matrix product is one of size 1.

    Attributes:
        name: for people.
        dtype: of the data; uint8 and int8 meet int8 weights, float32 its own.
        inputs, outputs: channels.
        size: height and width of the data.
        kernel, stride, groups: of the convolution, padded by kernel // 2.
        reach: largest magnitude of 8-bit weights.
    """

    name: str
    dtype: str
    inputs: int
    outputs: int
    size: int
    kernel: int
    stride: int = 1
    groups: int = 1
    reach: int = 128

    @property
    def padding(self) -> int:
        """Pixels on each side."""
        return self.kernel // 2

    @property
    def operations(self) -> int:
        """Of one run; a multiply-add counts as two."""
        rows = -(-self.size // self.stride)
        return 2 * rows * rows * self.outputs * self.inputs // self.groups * self.kernel**2


LAYERS = (
    Layer(name="3x3", dtype="uint8", inputs=64, outputs=64, size=28, kernel=3),
    Layer(
        name="3x3, small weights", dtype="uint8", inputs=64, outputs=64, size=28, kernel=3, reach=64
    ),
    Layer(name="3x3", dtype="int8", inputs=64, outputs=64, size=28, kernel=3),
    Layer(name="1x1", dtype="uint8", inputs=256, outputs=128, size=14, kernel=1),
    Layer(name="7x7/2", dtype="uint8", inputs=3, outputs=64, size=56, kernel=7, stride=2),
    Layer(name="depthwise", dtype="uint8", inputs=96, outputs=96, size=28, kernel=3, groups=96),
    Layer(name="grouped", dtype="uint8", inputs=64, outputs=64, size=14, kernel=3, groups=4),
    Layer(name="dense", dtype="uint8", inputs=512, outputs=1000, size=1, kernel=1),
    Layer(name="3x3", dtype="float32", inputs=64, outputs=64, size=28, kernel=3),
    Layer(name="depthwise", dtype="float32", inputs=96, outputs=96, size=28, kernel=3, groups=96),
)


@dataclass(frozen=True, kw_only=True)
class Example:
    """A layer with weights, and what it makes of some data.

    Attributes:
        mod: `main` computes the layer.
        weight: (O, I / groups, kernel, kernel).
        data: (1, I, size, size).
        expected: NumPy's result, (1, O, size / stride, size / stride).
    """

    mod: IRModule
    weight: Array
    data: Array
    expected: Array

    def differing(self, result: Array) -> int:
        """Elements of `result` that are not NumPy's: to the bit, or for float32 within rounding."""
        exact = self.expected.astype("float64")
        limit = FLOAT_TOLERANCE * np.abs(exact).max() if self.data.dtype == np.float32 else 0
        return int(np.count_nonzero(np.abs(result.astype("float64") - exact) > limit))


@dataclass(frozen=True, kw_only=True)
class KernelCheck:
    """What one kernel did.

    Attributes:
        layer: what it computed.
        instruction: what does the products: LLVM's name, or "vectorized by LLVM"; and the algorithm
            where it is Winograd's.
        differing: elements that are not NumPy's, of `elements`.
        gops: 1e9 operations per second, on as many threads as TVM uses.
    """

    layer: Layer
    instruction: str
    differing: int
    elements: int
    gops: float

    @property
    def passed(self) -> bool:
        """Whether all elements are NumPy's: to the bit, or for float32 within rounding."""
        return not self.differing


def check_kernels(target: Target | None = None) -> Iterator[KernelCheck]:
    """Run each of `LAYERS` and compare it with NumPy.

    Args:
        target: of this machine; without, all that it has.
    """
    for seed, layer in enumerate(LAYERS):
        yield check_kernel(layer, target or host_target(), seed)


def check_kernel(layer: Layer, target: Target, seed: int = 0) -> KernelCheck:
    """Run one layer on random data and compare it with NumPy."""
    example = layer_example(layer, seed)
    runner = Runner(example.mod, target)
    (result,) = runner.run({"data": example.data})
    milliseconds = median(runner.latency_ms({"data": example.data}, repeats=ROUNDS))
    return KernelCheck(
        layer=layer,
        instruction=_instruction(layer, target, example.weight),
        differing=example.differing(result),
        elements=example.expected.size,
        gops=layer.operations / milliseconds / 1e6,
    )


def layer_example(layer: Layer, seed: int = 0) -> Example:
    """One layer with random weights and data."""
    rng = np.random.default_rng(seed)
    data = _random(rng, layer.dtype, (1, layer.inputs, layer.size, layer.size))
    weight = _random_weight(rng, layer)
    expected = _expected(layer, data, weight)
    return Example(mod=_module(layer, weight), weight=weight, data=data, expected=expected)


def _module(layer: Layer, weight: Array) -> IRModule:
    data = relax.Var(
        "data", relax.TensorType((1, layer.inputs, layer.size, layer.size), layer.dtype)
    )
    builder = relax.BlockBuilder()
    with builder.function("main", [data]):
        with builder.dataflow():
            total = relax.op.nn.conv2d(
                data,
                constant(weight),
                strides=layer.stride,
                padding=layer.padding,
                groups=layer.groups,
                out_dtype="float32" if layer.dtype == "float32" else "int32",
            )
            if layer.dtype != "float32":
                total = requantize(builder.emit(total), _multiplier(layer), 0, **OUTPUT)
            result = builder.emit_output(total)
        builder.emit_func_output(result)
    return builder.get()


def _expected(layer: Layer, data: Array, weight: Array) -> Array:
    total = _convolve(layer, data, weight)
    if layer.dtype == "float32":
        return total
    return requantize_numpy(total.astype("int64"), _multiplier(layer), 0, **OUTPUT)


def _convolve(layer: Layer, data: Array, weight: Array) -> Array:
    """In float64, which holds these sums of 8-bit products exactly."""
    pad = (layer.padding, layer.padding)
    padded = np.pad(data.astype("float64"), ((0, 0), (0, 0), pad, pad))
    windows = np.lib.stride_tricks.sliding_window_view(
        padded, (layer.kernel, layer.kernel), axis=(2, 3)
    )[:, :, :: layer.stride, :: layer.stride]
    groups = windows.reshape(1, layer.groups, -1, *windows.shape[2:])
    filters = weight.astype("float64").reshape(layer.groups, -1, *weight.shape[1:])
    total = np.einsum("ngihwkl,goikl->ngohw", groups, filters, optimize=True)
    return np.asarray(total.reshape(1, layer.outputs, *total.shape[3:]))


def _multiplier(layer: Layer) -> float:
    """Brings sums of random 8-bit products to the range of 8 bits."""
    products = layer.inputs // layer.groups * layer.kernel**2
    return 1 / (80 * float(np.sqrt(products)))


def _random(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    if dtype == "float32":
        return rng.normal(size=shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def _random_weight(rng: np.random.Generator, layer: Layer) -> Array:
    shape = (layer.outputs, layer.inputs // layer.groups, layer.kernel, layer.kernel)
    if layer.dtype == "float32":
        return _random(rng, layer.dtype, shape)
    return rng.integers(-layer.reach, layer.reach, shape).astype("int8")


def _instruction(layer: Layer, target: Target, weight: Array) -> str:
    isa = isa_of(target)
    depthwise = layer.groups == layer.inputs
    pair = 2 * layer.reach
    dot = isa.tap_dot(layer.dtype) if depthwise else isa.dot(layer.dtype, pair=pair)
    if layer.groups == 1 and _plan(layer, isa, dot, weight):
        dot = isa.dot("int16", size=2) if dot else None
        return f"{_name(dot)}, Winograd"
    return _name(dot)


def _name(dot: Dot | None) -> str:
    return dot.instruction if dot else "vectorized by LLVM"


def _plan(layer: Layer, isa: Isa, dot: Dot | None, weight: Array) -> Plan | None:
    padding, rows = (layer.padding,) * 2, -(-layer.size // layer.stride)
    window = Window(
        kernel=(layer.kernel,) * 2,
        stride=(layer.stride,) * 2,
        dilation=(1, 1),
        pad_before=padding,
        pad_after=padding,
    )
    last = np.moveaxis(weight, 1, -1)
    return plan(isa, dtype=layer.dtype, dot=dot, window=window, output=(rows, rows), weight=last)
