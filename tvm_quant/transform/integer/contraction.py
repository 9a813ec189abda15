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
from tvm_quant.op import contraction_axes
from tvm_quant.transform.channel_vector import along, scale_per_output, with_rank
from tvm_quant.transform.integer.emitter import Emitter, rank, wide_dtype
from tvm_quant.transform.integer.value import Accumulator, Array, Codes, Value

#: Depth that a matmul of unknown depth is taken to have: 32 bits hold so many 8-bit products.
UNKNOWN_DEPTH = 1 << 16

_CONVOLUTION_ATTRS = ("strides", "dilation", "groups", "data_layout", "kernel_layout", "out_layout")


def realize_contraction(emitter: Emitter, call: relax.Call, operands: list[Value]) -> Value | None:
    """The accumulator of a convolution or matmul whose operands are codes."""
    data, weight = operands
    if not (isinstance(data, Codes) and isinstance(weight, Codes)) or data.scale.size != 1:
        return None
    codes = constant_value(weight.expr)
    if codes is None:
        return _run_time_product(emitter, call, data, weight)
    if not _scaled_by_output(call, weight):
        return None
    weight_steps = codes.astype("int64") - weight.zero_point
    bound = data.reach * _per_output(call, np.abs(weight_steps))
    dtype = wide_dtype(float(bound.max()))
    kernel = weight.expr
    if weight.zero_point.any():
        kernel = constant(weight_steps.astype(_narrowest(weight_steps)))
    if contraction_axes(call).transposed:
        expr = _convolve(emitter, call, emitter.centred(data, _signed(data)), kernel, dtype)
        offset = np.zeros((), "int64")
    else:
        expr = _convolve(emitter, call, data.expr, kernel, dtype, _padding(data, call))
        offset = -int(data.zero_point) * _per_output(call, weight_steps)
    scale = float(data.scale) * scale_per_output(call, weight.scale, codes.shape)
    return Accumulator(expr=expr, scale=scale, bound=bound, offset=offset)


def _scaled_by_output(call: relax.Call, weight: Codes) -> bool:
    """Whether one scale holds for all that is summed: it differs along output channels alone.

    The weights of a transposed convolution are held to it by their grids.
    """
    axes = contraction_axes(call)
    if weight.scale.size == 1 or axes.transposed:
        return True
    varying = [axis for axis, size in enumerate(weight.scale.shape) if size > 1]
    if op_name(call) == "relax.matmul":
        return axes.weight_input % weight.scale.ndim not in varying
    return varying == [axes.weight_output]


def _run_time_product(
    emitter: Emitter, call: relax.Call, left: Codes, right: Codes
) -> Value | None:
    if op_name(call) != "relax.matmul" or right.scale.size != 1:
        return None
    depth = (tensor_shape(call.args[0]) or (None,))[-1] or UNKNOWN_DEPTH
    bound = np.asarray(left.largest * right.largest * depth, "float64")
    dtype = wide_dtype(float(bound))
    operands = [emitter.centred(codes, _signed(codes)) for codes in (left, right)]
    expr = emitter.emit(relax.op.matmul(*operands, out_dtype=dtype))
    return Accumulator(expr=expr, scale=left.scale * right.scale, bound=bound)


def _convolve(
    emitter: Emitter,
    call: relax.Call,
    data: relax.Expr,
    weight: relax.Expr,
    dtype: str,
    zero_padding: float | None = None,
) -> relax.Expr:
    """The call on integers; with `zero_padding`, data is padded with that code beforehand."""
    name = str(op_name(call))
    if name == "relax.matmul":
        return emitter.emit(relax.op.matmul(data, weight, out_dtype=dtype))
    attrs = {key: getattr(call.attrs, key) for key in _CONVOLUTION_ATTRS}
    attrs["groups"] = int(attrs["groups"])
    padding = [int(p) for p in call.attrs.padding]
    if "transpose" in name:
        attrs["output_padding"] = call.attrs.output_padding
    elif zero_padding is not None:
        padded = pad_spatial(data, padding, str(call.attrs.data_layout), zero_padding)
        data, padding = emitter.emit(padded, "_pad"), [0] * len(padding)
    operator = getattr(relax.op.nn, name.removeprefix("relax.nn."))
    return emitter.emit(operator(data, weight, padding=padding, out_dtype=dtype, **attrs))


def _padding(data: Codes, call: relax.Call) -> float | None:
    """The code to pad with beforehand; None where the operator's own zeros do."""
    pads = op_name(call) != "relax.matmul" and any(int(p) for p in call.attrs.padding)
    return float(data.zero_point) if pads and data.zero_point.any() else None


def pad_spatial(data: relax.Expr, padding: list[int], layout: str, value: float) -> relax.Expr:
    """Pad the spatial axes; `padding` is all befores, then all afters."""
    spatial = [axis for axis, letter in enumerate(layout) if letter not in "NC"]
    widths = [0] * (2 * len(layout))
    for index, axis in enumerate(spatial):
        widths[2 * axis] = padding[index]
        widths[2 * axis + 1] = padding[index + len(spatial)]
    return relax.op.nn.pad(data, widths, "constant", value)


def _per_output(call: relax.Call, steps: Array) -> Array:
    """Sum of the weights that each output element reads, broadcastable to the result."""
    axes = contraction_axes(call)
    if op_name(call) == "relax.matmul":
        return with_rank(steps.sum(axis=axes.weight_input, keepdims=True), rank(call))
    blocks = steps.reshape(axes.weight_blocks, -1, *steps.shape[1:])
    keep = (0, axes.weight_output + 1)
    reduced = tuple(axis for axis in range(blocks.ndim) if axis not in keep)
    return along(blocks.sum(axis=reduced).reshape(-1), axes.output, rank(call))


def _narrowest(steps: Array) -> str:
    """The narrowest signed type that holds integers."""
    return next(
        dtype
        for dtype in ("int8", "int16", "int32")
        if np.iinfo(dtype).min <= steps.min() and steps.max() <= np.iinfo(dtype).max
    )


def _signed(codes: Codes) -> str:
    """The narrowest signed type that holds code - zero_point."""
    return "int16" if codes.largest < 2**15 else "int32"
