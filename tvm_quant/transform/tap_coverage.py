"""How often each tap of a kernel meets a value."""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from tvm_quant.ir import op_name, tensor_shape
from tvm_quant.transform.kernel_axes import KernelAxis, kernel_axes

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
    return reduce(np.multiply.outer, map(_share, kernel_axes(call))).reshape(-1)


def _share(axis: KernelAxis) -> Array:
    if axis.inputs is None or axis.outputs is None:
        return np.full(axis.taps, 1 / axis.stride if axis.transposed else 1.0)
    _index, meets = axis.reads(np.arange(axis.outputs))
    return np.asarray(meets.sum(axis=0) / axis.outputs)
