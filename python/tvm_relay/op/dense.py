"""Matrix products, and the bias behind them and behind convolutions."""

from __future__ import annotations

from typing import Any

from tvm import relax

from tvm_relay.op.base import emit, or_none, rank, relay_op, shape

Shape = tuple[Any, ...]


def _dense_weight(data: Shape, _weight: Any, units: int | None, **_attrs: Any) -> dict[str, Shape]:
    return {} if units is None else {"weight": (units, data[-1])}


@relay_op("nn.dense", weights=_dense_weight)
def dense(
    data: relax.Expr, weight: relax.Expr, /, units: int | None = None, out_dtype: str = ""
) -> relax.Expr:
    return relax.op.matmul(data, _transposed(weight), or_none(out_dtype))


@relay_op("nn.matmul")
def matmul(
    tensor_a: relax.Expr,
    tensor_b: relax.Expr,
    /,
    units: int | None = None,
    out_dtype: str = "",
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> relax.Expr:
    return batch_matmul(tensor_a, tensor_b, out_dtype, transpose_a, transpose_b)


@relay_op("nn.batch_matmul")
def batch_matmul(
    tensor_a: relax.Expr,
    tensor_b: relax.Expr,
    /,
    out_dtype: str = "",
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> relax.Expr:
    left = _transposed(tensor_a) if transpose_a else tensor_a
    right = _transposed(tensor_b) if transpose_b else tensor_b
    return relax.op.matmul(left, right, or_none(out_dtype))


def _bias(data: Shape, _bias: Any, axis: int) -> dict[str, Shape]:
    return {"bias": (data[axis],)}


@relay_op("nn.bias_add", weights=_bias)
def bias_add(data: relax.Expr, bias: relax.Expr, /, axis: int = 1) -> relax.Expr:
    return relax.op.add(data, along(bias, axis, rank(data)))


def along(vector: relax.Expr, axis: int, ndim: int) -> relax.Expr:
    """A vector that lies along one of `ndim` axes when broadcast."""
    axis %= ndim
    if axis == ndim - 1:
        return vector
    dims = [1] * ndim
    dims[axis] = shape(vector)[0]
    return emit(relax.op.reshape(vector, dims))


def _transposed(value: relax.Expr) -> relax.Expr:
    ndim = rank(value)
    return emit(relax.op.permute_dims(value, [*range(ndim - 2), ndim - 1, ndim - 2]))
