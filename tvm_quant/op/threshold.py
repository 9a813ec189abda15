"""`tvm_quant.threshold`: codes by comparison, for any monotone function of a tensor.

    q = low + #{k : data >= thresholds[..., k]}

With thresholds where the code of a function changes, no arithmetic is left that could round: the
codes are exact by construction. FINN calls the operator MultiThreshold (Umuroglu et al., FPGA 2017,
arXiv:1612.07119, section 4.1.3).
"""

from __future__ import annotations

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
    return relax.Call(THRESHOLD, [data, constant(steps)], attrs)


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
        step = te.reduce_axis((0, thresholds.shape[-1]), "step")

        def reached(*index: tirx.Var) -> tirx.PrimExpr:
            least = load_broadcast(thresholds, (*index, step.var))
            return te.sum((data(*index) >= least).astype("int32"), axis=step)

        count = te.compute(data.shape, reached, name="reached")
        return te.compute(
            data.shape,
            lambda *index: (count(*index) + te.const(low, "int32")).astype(dtype),
            name="threshold",
        )

    return builder.call_te(compute, *call.args, primfunc_name_hint="threshold")
