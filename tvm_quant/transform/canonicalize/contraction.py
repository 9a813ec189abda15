"""Weights of convolutions and matrix products by output and input channel, in any layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from tvm_quant.ir import constant_value, op_name, tensor_shape
from tvm_quant.op import ContractionAxes, contraction_axes
from tvm_quant.transform.canonicalize.rewriter import constant

Array = npt.NDArray[Any]

_CONVOLUTIONS = tuple(f"relax.nn.conv{n}d{kind}" for n in (1, 2, 3) for kind in ("", "_transpose"))


def is_contraction(expr: relax.Expr) -> bool:
    """Whether `expr` is a convolution or matrix product with constant float weights."""
    name = op_name(expr)
    if name != "relax.matmul" and name not in _CONVOLUTIONS:
        return False
    weight = constant_value(expr.args[1])
    if weight is None or str(weight.dtype) != "float32" or weight.ndim < 2:
        return False
    return _rank(expr.args[0]) >= 2 and (name == "relax.matmul" or _has_plain_layout(expr))


def channel_axis(expr: relax.Expr) -> int | None:
    """Axis of the output channels in the result of a contraction; None for anything else."""
    return contraction_axes(expr).output if is_contraction(expr) else None


def per_channel(value: Array, rank: int, axis: int, channels: int) -> Array | None:
    """A constant that varies along one axis alone, as a vector (channels,); None for others.

    >>> per_channel(np.arange(3.0).reshape(3, 1, 1), rank=4, axis=1, channels=3).tolist()
    [0.0, 1.0, 2.0]
    """
    if value.ndim > rank:
        return None
    full = value.reshape((1,) * (rank - value.ndim) + value.shape)
    others = [size for index, size in enumerate(full.shape) if index != axis]
    if any(size != 1 for size in others) or full.shape[axis] not in (1, channels):
        return None
    return np.broadcast_to(full.reshape(-1), (channels,))


class Weights:
    """The constant weights of a contraction, by output and input channel."""

    def __init__(self, call: relax.Call):
        self.call = call
        self.axes: ContractionAxes = contraction_axes(call)
        value = constant_value(call.args[1])
        assert value is not None
        self.value = value

    @property
    def outputs(self) -> int:
        """Output channels, all groups together."""
        size = int(self.value.shape[self.axes.weight_output])
        return size * self.axes.groups if self.axes.transposed else size

    @property
    def inputs(self) -> int:
        """Input channels, all groups together."""
        size = int(self.value.shape[self.axes.weight_input])
        return size if self.axes.transposed else size * self.axes.groups

    def with_value(self, value: Array) -> relax.Call:
        """The contraction with other weights."""
        args = [self.call.args[0], constant(value)]
        return relax.Call(self.call.op, args, self.call.attrs, self.call.ty_args)

    def scaled(self, *, outputs: Array | None = None, inputs: Array | None = None) -> Array:
        """Weights times a factor per output channel, (outputs,), or input channel, (inputs,)."""
        factor = np.ones((1, 1))
        if outputs is not None:
            factor = factor * self._grid(outputs, of_outputs=True)
        if inputs is not None:
            factor = factor * self._grid(inputs, of_outputs=False)
        canonical = self._canonical()
        scaled = canonical * factor.reshape(factor.shape + (1,) * (canonical.ndim - 2))
        return self._restored(scaled).astype("float32")

    def response(self, shift: Array) -> Array:
        """What a constant per input channel, (inputs,), adds to each output channel: (outputs,).

        For convolutions without padding and matrix products, where every output sees all weights.
        """
        canonical = self._canonical().astype("float64")
        taps = canonical.reshape(*canonical.shape[:2], -1).sum(axis=2)
        return np.asarray((taps * self._grid(shift, of_outputs=False)).sum(axis=1))

    def _grid(self, vector: Array, *, of_outputs: bool) -> Array:
        """Spread a vector over the (output, input) axes of the weights, which hold groups.

        Weights of a convolution are (outputs, inputs / groups), of a transposed one
        (outputs / groups, inputs): the grouped axis repeats along the other one.
        """
        groups = self.axes.groups
        if of_outputs != self.axes.transposed or groups == 1:
            return vector.reshape(-1, 1) if of_outputs else vector.reshape(1, -1)
        other = (self.inputs if self.axes.transposed else self.outputs) // groups
        spread = np.repeat(vector.reshape(groups, -1), other, axis=0)
        return spread.T if of_outputs else spread

    def _canonical(self) -> Array:
        return np.moveaxis(self.value, self._channels(), (0, 1))

    def _restored(self, canonical: Array) -> Array:
        return np.moveaxis(canonical, (0, 1), self._channels())

    def _channels(self) -> tuple[int, int]:
        return self.axes.weight_output, self.axes.weight_input


def is_padded(call: relax.Call) -> bool:
    """Whether a convolution reads zeros around its data."""
    return op_name(call) != "relax.matmul" and any(int(p) for p in call.attrs.padding)


def scaled_outputs(call: relax.Call, factor: Array) -> relax.Call:
    """The contraction whose result is `factor`, (outputs,), times that of `call`."""
    weights = Weights(call)
    return weights.with_value(weights.scaled(outputs=factor))


def bias_shape(call: relax.Call) -> tuple[int, ...]:
    """The canonical shape of a bias: rank of the result for convolutions, a vector for matmul."""
    if op_name(call) == "relax.matmul":
        return (-1,)
    shape = [1] * _rank(call)
    shape[contraction_axes(call).output] = -1
    return tuple(shape)


def _rank(expr: relax.Expr) -> int:
    return len(tensor_shape(expr) or ())


def _has_plain_layout(call: relax.Call) -> bool:
    layouts = (call.attrs.data_layout, call.attrs.kernel_layout, call.attrs.out_layout)
    return all(str(layout).isalpha() and str(layout).isupper() for layout in layouts if layout)
