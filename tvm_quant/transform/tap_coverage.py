"""How often each tap of a kernel meets a value."""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from tvm_quant.ir import op_name, tensor_shape

Array = npt.NDArray[Any]


def tap_coverage(call: relax.Call) -> Array:
    """Share of the output positions to which each tap of the weight brings a value of the input.

    At the borders a tap reads padding, and a transposed convolution of stride s reaches every s-th
    position. Of a batch of matrices each position uses one.

    Args:
        call: a convolution or matmul. Where the size of an axis is symbolic, borders are left out.

    Returns:
        float64, (T,): the taps in the order of the weight's axes other than its channels.

    >>> x = relax.Var("x", relax.TensorType((1, 1, 4), "float32"))
    >>> w = relax.Var("w", relax.TensorType((1, 1, 3), "float32"))
    >>> tap_coverage(relax.BlockBuilder().normalize(relax.op.nn.conv1d(x, w, padding=1))).tolist()
    [0.75, 1.0, 0.75]
    """
    if op_name(call) == "relax.matmul":
        matrices = prod(int(size or 1) for size in (tensor_shape(call.args[1]) or ())[:-2])
        return np.full(matrices, 1 / matrices)
    attrs = call.attrs
    layout, kernel = str(attrs.data_layout), str(attrs.kernel_layout)
    result_layout = str(attrs.out_layout or layout)
    data, weight, result = (tensor_shape(e) or () for e in (call.args[0], call.args[1], call))
    transposed = "transpose" in str(op_name(call))
    shares = [
        _along_axis(
            data[layout.index(letter)],
            result[result_layout.index(letter)],
            int(weight[kernel.index(letter)] or 1),
            stride=int(attrs.strides[index]),
            dilation=int(attrs.dilation[index]),
            before=int(attrs.padding[index]),
            transposed=transposed,
        )
        for index, letter in enumerate(letter for letter in kernel if letter not in "OI")
    ]
    return reduce(np.multiply.outer, shares).reshape(-1)


def _along_axis(
    inputs: int | None,
    outputs: int | None,
    taps: int,
    *,
    stride: int,
    dilation: int,
    before: int,
    transposed: bool,
) -> Array:
    if inputs is None or outputs is None:
        return np.full(taps, 1 / stride if transposed else 1.0)
    start, stop = (inputs, outputs) if transposed else (outputs, inputs)
    reached = np.arange(start)[None] * stride + np.arange(taps)[:, None] * dilation - before
    return np.asarray(((reached >= 0) & (reached < stop)).sum(axis=1) / outputs)
