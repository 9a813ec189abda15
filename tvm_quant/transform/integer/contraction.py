"""Convolutions and matrix products of codes.

    sum_k (x_k - z) w_k  =  sum_k x_k w_k  -  z sum_k w_k

so the integer operator runs on the codes as they are and the zero point becomes a constant per
output channel. Padding is done beforehand with the zero point, which stands for 0. Where both
operands are computed at run time, or for transposed convolutions (which pad between the elements),
the zero points are subtracted first.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from tvm_quant.ir import constant, constant_value, op_name, tensor_shape
from tvm_quant.op import ContractionAxes, contraction_axes
from tvm_quant.transform.integer.emitter import Emitter, along, rank, wide_dtype
from tvm_quant.transform.integer.value import Accumulator, Array, Codes, Value

_CONVOLUTION_ATTRS = ("strides", "dilation", "groups", "data_layout", "kernel_layout", "out_layout")


def realize_contraction(emitter: Emitter, call: relax.Call, operands: list[Value]) -> Value | None:
    """The accumulator of a convolution or matmul whose operands are codes."""
    data, weight = operands
    if not (isinstance(data, Codes) and isinstance(weight, Codes)) or data.scale.size != 1:
        return None
    axes = contraction_axes(call)
    codes = constant_value(weight.expr)
    if codes is None:
        return _run_time_product(emitter, call, data, weight)
    weight_steps = codes.astype("int64") - weight.zero_point
    magnitude = data.largest * _per_output(np.abs(weight_steps), axes, "sum")
    dtype = wide_dtype(float(magnitude.max()))
    kernel = weight.expr
    if weight.zero_point.any():
        kernel = constant(
            weight_steps.astype("int16" if np.abs(weight_steps).max() < 2**15 else "int32")
        )
    ndim = rank(call)
    scale = float(data.scale) * _scale_per_output(weight, axes)
    if axes.transposed:
        expr = _convolve(emitter, call, emitter.centred(data, _signed(data)), kernel, dtype)
        offset = np.zeros((), "int64")
    else:
        source = _padded(emitter, call, data)
        expr = _convolve(emitter, call, source, kernel, dtype)
        offset = -int(data.zero_point) * _per_output(weight_steps, axes, "sum")
    return Accumulator(
        expr=expr,
        scale=_shaped(scale, axes.output, ndim),
        bound=_shaped(magnitude, axes.output, ndim),
        offset=_shaped(offset, axes.output, ndim),
    )


def _run_time_product(
    emitter: Emitter, call: relax.Call, left: Codes, right: Codes
) -> Value | None:
    if op_name(call) != "relax.matmul" or right.scale.size != 1:
        return None
    depth = (tensor_shape(call.args[0]) or (None,))[-1] or 1
    bound = np.asarray(left.largest * right.largest * depth, "float64")
    dtype = wide_dtype(float(bound))
    operands = [emitter.centred(codes, _signed(codes)) for codes in (left, right)]
    expr = emitter.emit(relax.op.matmul(*operands, out_dtype=dtype))
    return Accumulator(expr=expr, scale=left.scale * right.scale, bound=bound)


def _convolve(
    emitter: Emitter, call: relax.Call, data: relax.Expr, weight: relax.Expr, dtype: str
) -> relax.Expr:
    name = str(op_name(call))
    if name == "relax.matmul":
        return emitter.emit(relax.op.matmul(data, weight, out_dtype=dtype))
    attrs = {key: getattr(call.attrs, key) for key in _CONVOLUTION_ATTRS}
    attrs["groups"] = int(attrs["groups"])
    padding = list(call.attrs.padding)
    if "transpose" in name:
        attrs["output_padding"] = call.attrs.output_padding
    elif not data.same_as(call.args[0]) and _was_padded(data, call):
        padding = [0] * len(padding)
    operator = getattr(relax.op.nn, name.removeprefix("relax.nn."))
    return emitter.emit(operator(data, weight, padding=padding, out_dtype=dtype, **attrs))


def _was_padded(data: relax.Expr, call: relax.Call) -> bool:
    return tensor_shape(data) != tensor_shape(call.args[0])


def _padded(emitter: Emitter, call: relax.Call, data: Codes) -> relax.Expr:
    if op_name(call) == "relax.matmul" or not data.zero_point.any():
        return data.expr
    padding = [int(p) for p in call.attrs.padding]
    if not any(padding):
        return data.expr
    return emitter.emit(pad_spatial(data, padding, str(call.attrs.data_layout)), "_pad")


def pad_spatial(data: Codes, padding: list[int], layout: str) -> relax.Expr:
    """Pad the spatial axes with the zero point; `padding` is all befores, then all afters."""
    spatial = [axis for axis, letter in enumerate(layout) if letter not in "NC"]
    widths = [0] * (2 * len(layout))
    for index, axis in enumerate(spatial):
        widths[2 * axis] = padding[index]
        widths[2 * axis + 1] = padding[index + len(spatial)]
    return relax.op.nn.pad(data.expr, widths, "constant", float(data.zero_point))


def _per_output(steps: Array, axes: ContractionAxes, reduction: str) -> Array:
    """Sum over everything but the output channels: (O,)."""
    blocks = (
        steps.reshape(axes.weight_blocks, -1, *steps.shape[1:])
        if axes.weight_blocks > 1
        else steps[None]
    )
    keep = (0, axes.weight_output + 1)
    reduced = tuple(axis for axis in range(blocks.ndim) if axis not in keep)
    return np.asarray(getattr(blocks, reduction)(axis=reduced)).reshape(-1)


def _scale_per_output(weight: Codes, axes: ContractionAxes) -> Array:
    if weight.scale.size == 1:
        return weight.scale.reshape(())
    shape = list(weight.scale.shape)
    if axes.weight_blocks > 1:
        per_block = weight.scale.reshape(axes.weight_blocks, -1, *shape[1:])[:, 0]
        return per_block.reshape(-1)
    return weight.scale.reshape(-1)


def _shaped(vector: Array, axis: int, ndim: int) -> Array:
    return vector if vector.size == 1 and vector.ndim == 0 else along(vector, axis, ndim)


def _signed(codes: Codes) -> str:
    """The narrowest signed type that holds code - zero_point."""
    return "int16" if codes.largest < 2**15 else "int32"
