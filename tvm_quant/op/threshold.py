"""`tvm_quant.threshold`: codes by comparison, for any monotone function of a tensor.

    q = low + #{k : data >= thresholds[..., k]}

With thresholds where the code of a function changes, no arithmetic is left that could round: the
codes are exact by construction. FINN calls the operator MultiThreshold (Umuroglu et al., FPGA 2017,
arXiv:1612.07119, section 4.1.3).
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
from tvm import relax, te, tirx
from tvm.relax.transform.legalize_ops.common import register_legalize

from tvm_quant.errors import ConfigError
from tvm_quant.ir import constant
from tvm_quant.op.register import dict_attrs, register_op
from tvm_quant.op.simulated_quantize import load_broadcast

Array = npt.NDArray[Any]


def threshold(data: relax.Expr, thresholds: npt.ArrayLike, *, low: int, dtype: str) -> relax.Call:
    """Count the thresholds that each element reaches.

    Args:
        data: int32, int64 or float32, any shape.
        thresholds: of the type of `data`, not falling along the last axis, shape (n,) or the rank
            of `data` and one more, broadcastable: (1, C, 1, 1, n) for channels.
        low: code below all thresholds.
        dtype: of the result; holds low + n.

    Returns:
        A call of the shape of `data`.

    Raises:
        ConfigError: thresholds fall.
    """
    steps = np.asarray(thresholds, str(data.ty.dtype))
    if (steps[..., 1:] < steps[..., :-1]).any():
        raise ConfigError("threshold: the thresholds of an element fall; sort them.")
    attrs = dict_attrs(low=int(low), dtype=dtype)
    return relax.Call(THRESHOLD, [data, constant(_padded(steps))], attrs)


def threshold_numpy(data: npt.ArrayLike, thresholds: npt.ArrayLike, *, low: int) -> Array:
    """NumPy reference of `threshold`, int64.

    >>> threshold_numpy([-1, 2, 5], [0, 5], low=-1).tolist()
    [-1, 0, 1]
    """
    data, thresholds = np.asarray(data), np.asarray(thresholds)
    return np.asarray(low + (data[..., None] >= thresholds).sum(axis=-1))


def is_threshold(expr: relax.Expr) -> TypeGuard[relax.Call]:
    """Whether `expr` is a call of this op."""
    return isinstance(expr, relax.Call) and expr.op == THRESHOLD


def _padded(thresholds: Array) -> Array:
    """One less than a power of two, for the search: what is added is never reached."""
    count = thresholds.shape[-1]
    missing = (1 << count.bit_length()) - 1 - count
    integer = np.issubdtype(thresholds.dtype, np.integer)
    never = np.iinfo(thresholds.dtype).max if integer else np.inf
    widths = [(0, 0)] * (thresholds.ndim - 1) + [(0, missing)]
    return np.pad(thresholds, widths, constant_values=never)


THRESHOLD = register_op(
    "tvm_quant.threshold",
    "Count the thresholds that each element reaches.",
    [
        ("data", "int32, int64 or float32, any shape"),
        ("thresholds", "type of data, (n,) or broadcastable to data with one more axis of n"),
    ],
    lambda call, _builder: relax.TensorType(call.args[0].ty.shape, str(call.attrs["dtype"])),
)


@register_legalize("tvm_quant.threshold")
def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    low, dtype = int(call.attrs["low"]), str(call.attrs["dtype"])

    def compute(data: te.Tensor, thresholds: te.Tensor) -> te.Tensor:
        count = _search(data, thresholds)
        return te.compute(
            data.shape,
            lambda *index: (count(*index) + te.const(low, "int32")).astype(dtype),
            name="threshold",
        )

    return builder.call_te(compute, *call.args, primfunc_name_hint="threshold")


def _search(data: te.Tensor, thresholds: te.Tensor) -> te.Tensor:
    """Binary search, a stage for each bit: how many of the last axis are not above `data`."""
    step = (int(thresholds.shape[-1]) + 1) // 2
    count = te.compute(data.shape, lambda *_index: te.const(0, "int32"), name="none")
    while step:
        count = te.compute(
            data.shape, partial(_advance, data, thresholds, count, step), name=f"step{step}"
        )
        step //= 2
    return count


def _advance(
    data: te.Tensor, thresholds: te.Tensor, count: te.Tensor, step: int, *index: tirx.Var
) -> tirx.PrimExpr:
    found = count(*index)
    last = load_broadcast(thresholds, (*index, found + te.const(step - 1, "int32")))
    return tirx.Select(data(*index) >= last, found + te.const(step, "int32"), found)
