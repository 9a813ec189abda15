"""`tvm_quant.quantize`: the codes of real numbers, by the rounding and formula of any grid.

    q = clamp(round(data / scale) + zero_point, qmin, qmax)       or another `QuantSpec.formula`

It is what a `simulated_quantize` of a float tensor becomes where the grid has a rounding or formula
of its own; for the others, plain Relax operators say the same.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from tvm import relax, te, tirx
from tvm.relax.transform.legalize_ops.common import register_legalize

from tvm_quant.ir import constant
from tvm_quant.op.register import dict_attrs, register_op
from tvm_quant.op.simulated_quantize import codes_te, load_broadcast
from tvm_quant.op.spec import QuantSpec


def quantize(
    data: relax.Expr, scale: npt.ArrayLike, zero_point: npt.ArrayLike, spec: QuantSpec
) -> relax.Call:
    """Codes of `data`.

    Args:
        data: float32, any shape.
        scale: > 0, shape () or of data's rank, broadcastable.
        zero_point: int32, shape of `scale`.
        spec: the grid.

    Returns:
        A call of the shape of `data` and type `spec.dtype`.
    """
    grid = [np.asarray(scale, "float32"), np.asarray(zero_point, "int32")]
    operands = [data, *map(constant, grid)]
    return relax.Call(QUANTIZE, operands, dict_attrs(**spec.to_attrs()))


QUANTIZE = register_op(
    "tvm_quant.quantize",
    "Codes of real numbers on an integer grid.",
    [
        ("data", "float32, any shape"),
        ("scale", "float32, broadcastable to data"),
        ("zero_point", "int32, shape of scale"),
    ],
    lambda call, _builder: relax.TensorType(
        call.args[0].ty.shape, QuantSpec.from_attrs(call.attrs).dtype
    ),
)


@register_legalize("tvm_quant.quantize")
def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    spec = QuantSpec.from_attrs(call.attrs)

    def compute(data: te.Tensor, scale: te.Tensor, zero_point: te.Tensor) -> te.Tensor:
        def element(*index: tirx.Var) -> tirx.PrimExpr:
            zero = load_broadcast(zero_point, index).astype("float32")
            code = codes_te(data(*index), load_broadcast(scale, index), zero, spec)
            return code.astype(spec.dtype)

        return te.compute(data.shape, element, name="quantize")

    return builder.call_te(compute, *call.args, primfunc_name_hint="quantize")
