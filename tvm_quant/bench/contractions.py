"""The convolutions and matrix products of a module: what they are and how much they compute."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import tvm
from tvm import IRModule, relax

from tvm_quant.bench.samples import Array
from tvm_quant.ir import bindings, node_name, op_name, producers, tensor_shape
from tvm_quant.ir.signature import main_function
from tvm_quant.op import ContractionAxes, Role, contraction_axes, role_of

Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Contraction:
    """One convolution or matrix product.

    Attributes:
        node: its name, as the model spells it.
        what: kernel, stride and channels in words, such as "conv 3x3/2 64 -> 128".
        data: shapes of the data with channels last: as it is read, and before a pad in front.
        kernel: spatial extent; empty for a matrix product.
        weight: elements of the weight.
        output: shape as the module has it.
        operations: a multiply-add counts as two; those on padding count, those on what a kernel
            adds to fill its vectors do not.
    """

    node: str
    what: str
    data: tuple[Shape, ...]
    kernel: Shape
    weight: int
    output: Shape
    operations: int


def contractions(mod: IRModule, inputs: Mapping[str, Array]) -> list[Contraction]:
    """The contractions of `main` in their order, for inputs of these shapes."""
    func = main_function(_with_shapes_of(mod, inputs))
    made = producers(func)
    return [
        _described(binding.value, node_name(func, binding.var), made)
        for binding in bindings(func)
        if isinstance(binding.value, relax.Call) and role_of(binding.value) is Role.CONTRACTION
    ]


def _with_shapes_of(mod: IRModule, inputs: Mapping[str, Array]) -> IRModule:
    sizes = {
        dim: size
        for param in main_function(mod).params
        for dim, size in zip(param.ty.shape.values, inputs[str(param.name)].shape, strict=True)
        if isinstance(dim, tvm.tirx.Var)
    }
    return relax.transform.BindSymbolicVars(sizes)(mod) if sizes else mod


def _described(call: relax.Call, node: str, made: Mapping[relax.Var, relax.Expr]) -> Contraction:
    axes = contraction_axes(call)
    data, weight, output = map(_shape, (*call.args[:2], call))
    sources = [data]
    producer = made.get(call.args[0])
    if isinstance(producer, relax.Call) and op_name(producer) == "relax.nn.pad":
        sources.append(_shape(producer.args[0]))
    kernel = _kernel(call, weight)
    return Contraction(
        node=node,
        what=_words(call, kernel, data, output),
        data=tuple(_channels_last(shape, axes.data) for shape in sources),
        kernel=kernel,
        weight=math.prod(weight),
        output=output,
        operations=2 * _products(axes, kernel, data, weight, output),
    )


def _shape(expr: relax.Expr) -> Shape:
    return tuple(size or 0 for size in tensor_shape(expr) or ())


def _channels_last(shape: Shape, channels: int) -> Shape:
    return (*shape[:channels], *shape[channels + 1 :], shape[channels])


def _kernel(call: relax.Call, weight: Shape) -> Shape:
    if op_name(call) == "relax.matmul":
        return ()
    layout = str(call.attrs.kernel_layout)
    return tuple(size for axis, size in zip(layout, weight, strict=True) if axis not in "OI")


def _products(
    axes: ContractionAxes, kernel: Shape, data: Shape, weight: Shape, output: Shape
) -> int:
    if not kernel:
        return math.prod(output) * data[axes.data]
    if axes.transposed:  # each input is spread over the outputs
        return math.prod(data) * math.prod(weight) // weight[axes.weight_input]
    return math.prod(output) * math.prod(weight) // weight[axes.weight_output]


def _words(call: relax.Call, kernel: Shape, data: Shape, output: Shape) -> str:
    axes = contraction_axes(call)
    inputs, outputs = data[axes.data], output[axes.output]
    if not kernel:
        return f"matmul {inputs} -> {outputs}"
    stride = max(int(step) for step in call.attrs.strides)
    window = "x".join(map(str, kernel)) + (f"/{stride}" if stride > 1 else "")
    if axes.groups == inputs == outputs:
        return f"depthwise {window} {outputs}"
    kind = "transposed conv" if axes.transposed else "conv"
    groups = f", {axes.groups} groups" if axes.groups > 1 else ""
    return f"{kind} {window} {inputs} -> {outputs}{groups}"
