"""`tvm_quant.sequential_conv2d`: a convolution that states the order of its float32 sums.

Float addition does not associate, so two libraries that convolve the same codes may differ in the
last bit, and where that bit decides a tie, in the next tensor's code. This operator adds as a
matrix product over the unfolded input does, block by block:

    block[b] = fma(x[k], w[k], fma(x[k-1], w[k-1], ...)),  k = b * length ... (b + 1) * length - 1
    y = (block[0] + block[1]) + block[2] ...

where k runs over (input channel, kernel row, kernel column), row-major. A fused multiply-add is
taken in float64, where the product is exact, and rounded to float32: the same on every target, with
or without such an instruction, and another result than one rounding's about once in 2**29. The
operator exists to reproduce another library's bits; every other convolution is faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
from tvm import relax, te, tirx
from tvm.relax.transform.legalize_ops.common import register_legalize

from tvm_quant.op.register import dict_attrs, register_op

Array = npt.NDArray[Any]


def sequential_conv2d(
    data: relax.Expr,
    weight: relax.Expr,
    *,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    block: int,
) -> relax.Call:
    """Convolve in the order of the module's formula.

    Args:
        data: float32 (N, C, H, W).
        weight: float32 (O, C / groups, KH, KW).
        strides, dilation: rows, columns.
        padding: top, left, bottom, right; its zeros are terms like others.
        groups: of channels.
        block: terms that are added before they join the sum, >= 1.

    Returns:
        A call of float32 (N, O, OH, OW).
    """
    attrs = dict_attrs(
        strides=list(strides),
        padding=list(padding),
        dilation=list(dilation),
        groups=int(groups),
        block=int(block),
    )
    return relax.Call(SEQUENTIAL_CONV2D, [data, weight], attrs)


def sequential_conv2d_numpy(
    data: Array,
    weight: Array,
    *,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    block: int,
) -> Array:
    """NumPy reference of `sequential_conv2d`.

    >>> ones = np.ones((1, 2, 3, 3), "float32")
    >>> sequential_conv2d_numpy(ones, ones, strides=(1, 1), padding=(0,) * 4, block=4).item()
    18.0
    """
    top, left, bottom, right = padding
    padded = np.pad(data, ((0, 0), (0, 0), (top, bottom), (left, right)))
    outputs, per_group, *kernel = weight.shape
    reach = [dilation[i] * (kernel[i] - 1) + 1 for i in range(2)]
    size = [(padded.shape[2 + i] - reach[i]) // strides[i] + 1 for i in range(2)]
    terms = list(np.ndindex(per_group, *kernel))
    group = np.arange(outputs) // (outputs // groups)
    total: Array | None = None
    for start in range(0, len(terms), block):
        partial = np.zeros((len(data), outputs, *size), "float32")
        for channel, row, column in terms[start : start + block]:
            rows = slice(row * dilation[0], row * dilation[0] + strides[0] * size[0], strides[0])
            columns = slice(
                column * dilation[1], column * dilation[1] + strides[1] * size[1], strides[1]
            )
            operand = padded[:, group * per_group + channel, rows, columns].astype("float64")
            factor = weight[:, channel, row, column].astype("float64")[None, :, None, None]
            partial = (operand * factor + partial).astype("float32")
        total = partial if total is None else total + partial
    return np.zeros((len(data), outputs, *size), "float32") if total is None else total


def is_sequential_conv2d(expr: relax.Expr) -> TypeGuard[relax.Call]:
    """Whether `expr` is a call of this op."""
    return isinstance(expr, relax.Call) and expr.op == SEQUENTIAL_CONV2D


def _infer(call: relax.Call, builder: relax.BlockBuilder) -> relax.Type:
    plain = relax.op.nn.conv2d(
        *call.args,
        strides=_ints(call, "strides"),
        padding=_ints(call, "padding"),
        dilation=_ints(call, "dilation"),
        groups=int(call.attrs["groups"]),
    )
    return builder.normalize(plain).ty


SEQUENTIAL_CONV2D = register_op(
    "tvm_quant.sequential_conv2d",
    "A convolution that states the order of its float32 sums.",
    [("data", "float32 (N, C, H, W)"), ("weight", "float32 (O, C / groups, KH, KW)")],
    _infer,
)


@register_legalize("tvm_quant.sequential_conv2d")
def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    strides, dilation = _ints(call, "strides"), _ints(call, "dilation")
    top, left, bottom, right = _ints(call, "padding")
    outputs, per_group, height, width = (int(extent) for extent in call.args[1].ty.shape)
    per_output = outputs // int(call.attrs["groups"])
    length = per_group * height * width
    block = min(int(call.attrs["block"]), length)
    add = _rounding_sum()

    def compute(data: te.Tensor, weight: te.Tensor) -> te.Tensor:
        batch, channels, rows, columns = data.shape
        padded = te.compute(
            (batch, channels, rows + top + bottom, columns + left + right),
            lambda n, c, y, x: tirx.if_then_else(
                tirx.all(y >= top, y < rows + top, x >= left, x < columns + left),
                data(n, c, y - top, x - left),
                te.const(0, "float32"),
            ),
            name="padded",
        )
        term = te.reduce_axis((0, block), name="term")

        def terms(b: tirx.Var, n: tirx.Var, o: tirx.Var, y: tirx.Var, x: tirx.Var) -> Any:
            k = b * block + term.var
            channel, row, column = k // (height * width), k // width % height, k % width
            inside = k < length
            operand = padded(
                n,
                o // per_output * per_group + tirx.min(channel, per_group - 1),
                y * strides[0] + row * dilation[0],
                x * strides[1] + column * dilation[1],
            )
            factor = weight(o, tirx.min(channel, per_group - 1), row, column)
            product = operand.astype("float64") * factor.astype("float64")
            return add(tirx.if_then_else(inside, product, te.const(0, "float64")), axis=term)

        size = [int(extent) for extent in list(call.ty.shape)[1:]]
        blocks = -(-length // block)
        partial = te.compute((blocks, batch, *size), terms, name="partial")
        join = te.reduce_axis((0, blocks), name="block")
        return te.compute(
            (batch, *size),
            lambda *index: te.sum(partial(join.var, *index).astype("float32"), axis=join),
            name="sequential_conv2d",
        )

    return builder.call_te(compute, *call.args, primfunc_name_hint="sequential_conv2d")


def _rounding_sum() -> Any:
    """A reducer of float64 products whose sum is rounded to float32 after each."""
    return te.comm_reducer(
        lambda total, product: (total + product).astype("float32").astype("float64"),
        lambda dtype: te.const(0, dtype),
        name="rounding_sum",
    )


def _ints(call: relax.Call, name: str) -> list[int]:
    return [int(value) for value in call.attrs[name]]
