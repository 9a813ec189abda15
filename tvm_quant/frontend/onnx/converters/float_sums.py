"""The order in which ONNX Runtime adds the float32 products of a convolution.

A QDQ graph says that a convolution is computed in float32. Its sums are close to the integers' and
rarely differ, but where one falls on a tie of the next quantizer, the order of the additions
decides its code. ONNX Runtime without graph optimizations multiplies matrices: the unfolded input,
in blocks of the terms, with a fused multiply-add for each (MLAS, `sgemm.cpp` and `convolve.cpp`;
the lengths below reproduce version 1.32 on one thread to the last bit, see the tests).

Products of a matrix and a vector (a convolution to one position, or to one channel of each group,
such as a depthwise one) have kernels of their own there; they keep their exact sums.
"""

from __future__ import annotations

import math

from tvm import relax

from tvm_quant.frontend.onnx.converters.node import Node
from tvm_quant.ir import tensor_shape
from tvm_quant.op.sequential_conv2d import sequential_conv2d

_STRIDE = 128
_LEAST_POSITIONS = 16

REASON = "its sums are float32, in the order of ONNX Runtime (rounding=onnxruntime)"


def block_length(terms: int, positions: int) -> int:
    """Products that are added before they join the sum.

    Args:
        terms: products of one output: input channels x kernel rows x kernel columns.
        positions: outputs of one channel: rows x columns.

    >>> block_length(576, 64), block_length(144, 1024), block_length(27, 1024)
    (256, 128, 32)
    """
    columns = block = _STRIDE
    if positions >= terms:
        while block // 2 >= terms:
            columns, block = columns * 2, block // 2
    else:
        while columns > _LEAST_POSITIONS and columns // 2 >= positions:
            columns, block = columns // 2, block * 2
    return block


def in_float_order(node: Node, conv: relax.Call) -> relax.Call:
    """The convolution with ONNX Runtime's order of additions, or as it is without a known one."""
    output, weight = _static_shape(conv), _static_shape(conv.args[1])
    types = {str(operand.ty.dtype) for operand in conv.args}
    if output is None or weight is None or len(output) != 4 or types != {"float32"}:
        return conv
    positions, groups = math.prod(output[2:]), int(conv.attrs.groups)
    if positions == 1 or output[1] == groups:
        return conv
    node.reasons[node.identifier] = REASON
    return sequential_conv2d(
        *conv.args,
        strides=conv.attrs.strides,
        padding=conv.attrs.padding,
        dilation=conv.attrs.dilation,
        groups=groups,
        block=block_length(math.prod(weight[1:]), positions),
    )


def _static_shape(value: relax.Expr) -> tuple[int, ...] | None:
    shape = tensor_shape(value) or ()
    known = tuple(size for size in shape if size is not None)
    return known if shape and len(known) == len(shape) else None
