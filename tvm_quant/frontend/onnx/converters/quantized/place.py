"""Placing a calibrated quantizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from tvm_quant.frontend.onnx.converters.node import Node
from tvm_quant.ir import constant, constant_value, op_name, tensor_shape
from tvm_quant.op import (
    Convention,
    Kind,
    QuantSpec,
    is_simulated,
    scale_of,
    simulated_quantize,
    simulated_quantize_numpy,
    spec_of,
)

Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Scale, zero point and codes of a tensor.

    Attributes:
        scale: float32, > 0, shape () or of the tensor's rank.
        zero_point: int64, shape of scale.
        spec: the codes.
    """

    scale: Array
    zero_point: Array
    spec: QuantSpec

    def same_values(self, other: Grid) -> bool:
        """Whether scale and zero point are equal."""
        return np.array_equal(self.scale, other.scale) and np.array_equal(
            self.zero_point, other.zero_point
        )


def place(
    node: Node, data: relax.Expr, grid: Grid, convention: Convention = Convention.EXACT
) -> relax.Var:
    """A variable bound to the quantizer of `data`."""
    if str(data.ty.dtype) != "float32":
        data = node.emit(relax.op.astype(data, "float32"))
    known = known_value(node, data)
    call = simulated_quantize(
        data if known is None else constant(known.astype("float32")),
        grid.scale,
        grid.zero_point,
        spec=grid.spec,
        kind=_kind(node, data, known),
        convention=convention,
    )
    return node.emit(call)


def known_value(node: Node, data: relax.Expr) -> Array | None:
    """The value of a constant, or of what quantizers make of one."""
    value = constant_value(data)
    if value is not None or not isinstance(data, relax.Var):
        return value
    call = node.builder.lookup_binding(data)
    if call is None or not is_simulated(call):
        return None
    inner = known_value(node, call.args[0])
    return (
        None if inner is None else simulated_quantize_numpy(inner, *scale_of(call), spec_of(call))
    )


def aligned(array: Array, data: relax.Expr, what: str) -> Array:
    """A parameter of a quantizer, of rank 0 or of that of the data.

    Raises:
        ValueError: it does not broadcast to the data.
    """
    if array.size == 1 or (array == array.flat[0]).all():
        return array.flat[0] if array.size else _refuse(array, data, what)
    shape = tensor_shape(data)
    if shape is None or array.ndim > len(shape):
        return _refuse(array, data, what)
    padded = (1,) * (len(shape) - array.ndim) + array.shape
    if any(n not in (1, size) for n, size in zip(padded, shape, strict=True) if size is not None):
        return _refuse(array, data, what)
    return array.reshape(padded)


def _refuse(array: Array, data: relax.Expr, what: str) -> Array:
    raise ValueError(
        f"its {what} of shape {array.shape} does not broadcast to the data of shape "
        f"{tensor_shape(data)}"
    )


def checked_scale(scale: Array) -> Array:
    """A scale that is finite and positive.

    Raises:
        ValueError: it is not.
    """
    scale = np.asarray(scale, "float32")
    if not (np.isfinite(scale) & (scale > 0)).all():
        raise ValueError(
            f"its scale holds {float(scale.min())}; expected positive finite numbers. Export the "
            "model again after calibration"
        )
    return scale


def along(vector: Array, axis: int, rank: int) -> Array:
    """A vector as an array of `rank` axes that runs along `axis`."""
    shape = [1] * rank
    shape[axis] = -1
    return vector.reshape(shape)


def axis_of(*arrays: Array) -> int | None:
    """The first axis along which parameters of a quantizer vary."""
    for array in arrays:
        for axis, size in enumerate(np.shape(array)):
            if size > 1:
                return axis
    return None


def _kind(node: Node, data: relax.Expr, known: Array | None) -> Kind:
    if known is not None:
        return Kind.WEIGHT if known.ndim > 1 else Kind.BIAS
    is_input = isinstance(data, relax.Var) and node.builder.lookup_binding(data) is None
    return Kind.INPUT if is_input else Kind.ACTIVATION


def is_call(value: relax.Expr | None, name: str) -> bool:
    """Whether `value` calls the Relax operator `name`."""
    return value is not None and op_name(value) == name
