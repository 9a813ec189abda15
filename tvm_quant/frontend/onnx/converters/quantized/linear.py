"""QuantizeLinear and DequantizeLinear.

    DequantizeLinear(QuantizeLinear(x))    one quantizer
    DequantizeLinear(constant)             a quantized weight
    QuantizeLinear alone                   a quantizer, and `R.quantize` for readers of its codes
    DequantizeLinear alone                 `R.dequantize`

Scale and zero point that are computed at run time leave the calls as Relax has them.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from tvm_quant.frontend.onnx.converters.node import Node
from tvm_quant.frontend.onnx.converters.quantized.codes import (
    as_codes,
    grid_of,
    integer_spec,
    real_of,
    type_name,
)
from tvm_quant.frontend.onnx.converters.quantized.place import Array, place
from tvm_quant.ir import constant
from tvm_quant.op import Convention, QuantSpec

WHOLE_BYTE = 8

BLOCKS = "its weights are quantized in blocks along the axis that is summed over"


def quantize_linear(node: Node) -> relax.Expr:
    """Inputs: data, scale, zero point."""
    spec = _code_spec(node)
    axis = int(node.attributes.get("axis", 1))
    if node.is_computed(1) or node.is_computed(2):
        return _quantized_at_run_time(node, spec, axis)
    if _is_blocked(node):
        raise ValueError(
            "it quantizes in blocks; only constants may be. Export activations per tensor"
        )
    grid = grid_of(node, node.data, 1, 2, axis=axis, spec=spec)
    # The reference adds float32 products; with few codes their order does not matter.
    convention = Convention.EXACT if spec.bits < WHOLE_BYTE else Convention.NEAREST
    return as_codes(node, place(node, node.data, grid, convention), grid)


def dequantize_linear(node: Node) -> relax.Expr:
    """Inputs: codes, scale, zero point."""
    axis = int(node.attributes.get("axis", 1))
    if node.is_computed(1) or node.is_computed(2):
        return _dequantized_at_run_time(node, axis)
    if _is_blocked(node):
        return _of_blocks(node, axis)
    real, scale = real_of(node, 0, 1, 2, axis=axis), node.required(1)
    if str(scale.ty.dtype) == "float16":  # the type of the result follows that of the scale
        return relax.op.astype(real, "float16")
    return real


def _code_spec(node: Node) -> QuantSpec:
    zero_point, wanted = node.input(2), int(node.attributes.get("output_dtype", 0))
    if wanted:
        name = type_name(wanted)
        spec = integer_spec(name)
        return integer_spec(spec.dtype, spec.bits)
    if zero_point is None:
        return integer_spec("uint8")
    return integer_spec(str(zero_point.ty.dtype), node.width(2))


def _is_blocked(node: Node) -> bool:
    scale = node.constant(1)
    return bool(node.attributes.get("block_size", 0)) and scale is not None and scale.ndim > 1


def _of_blocks(node: Node, axis: int) -> relax.Expr:
    """A constant with a scale for each block of an axis, in float."""
    codes = node.known(0, "codes of blocks")
    block = int(node.attributes["block_size"])
    scale = _repeated(node.known(1, "scale"), block, axis, codes)
    zero_point = np.zeros((), "int64")
    if node.input(2) is not None:
        known = node.known(2, "zero point").astype("int64")
        zero_point = _repeated(known, block, axis, codes)
    node.reasons[node.identifier] = BLOCKS
    return constant(((codes.astype("int64") - zero_point) * scale).astype("float32"))


def _repeated(array: Array, block: int, axis: int, codes: Array) -> Array:
    wide = np.repeat(array, block, axis)
    index = [slice(None)] * wide.ndim
    index[axis] = slice(codes.shape[axis])
    if wide[tuple(index)].shape != codes.shape:
        raise ValueError(
            f"its scale of shape {array.shape} does not fit codes of shape {codes.shape} in blocks "
            f"of {block} along axis {axis}"
        )
    return np.asarray(wide[tuple(index)])


def _quantized_at_run_time(node: Node, spec: QuantSpec, axis: int) -> relax.Expr:
    zero_point = node.input(2)
    if zero_point is None:
        zero_point = constant(np.zeros((), spec.dtype))
    return relax.op.quantize(
        node.data, node.required(1), zero_point, axis=axis, out_dtype=spec.dtype
    )


def _dequantized_at_run_time(node: Node, axis: int) -> relax.Expr:
    zero_point = node.input(2)
    if zero_point is None:
        zero_point = constant(np.zeros((), str(node.data.ty.dtype)))
    return relax.op.dequantize(node.data, node.required(1), zero_point, axis=axis)
