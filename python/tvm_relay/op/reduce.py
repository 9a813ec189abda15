"""Operators that reduce axes."""

from __future__ import annotations

from typing import Any

from tvm import relax

from tvm_relay.op.base import axes_of, emit, rank, relay_op, scalar

_REDUCTIONS = {
    "max": relax.op.max,
    "mean": relax.op.mean,
    "min": relax.op.min,
    "prod": relax.op.prod,
    "sum": relax.op.sum,
}


def _axes(data: relax.Expr, axis: Any, exclude: bool) -> list[int]:
    axes = axes_of(axis, rank(data))
    return [a for a in range(rank(data)) if a not in axes] if exclude else axes


def _enter(name: str, function: Any) -> None:
    @relay_op(name)
    def build(
        data: relax.Expr, /, axis: Any = None, keepdims: bool = False, exclude: bool = False
    ) -> relax.Expr:
        return function(data, _axes(data, axis, exclude), keepdims)


for _name, _function in _REDUCTIONS.items():
    _enter(_name, _function)


def _enter_logical(name: str, function: Any) -> None:
    @relay_op(name)
    def build(
        data: relax.Expr, /, axis: Any = None, keepdims: bool = False, exclude: bool = False
    ) -> relax.Expr:
        numbers = emit(relax.op.astype(data, "int32"))
        found = emit(function(numbers, _axes(data, axis, exclude), keepdims))
        return relax.op.astype(found, "bool")


for _name, _function in {"all": relax.op.min, "any": relax.op.max}.items():
    _enter_logical(_name, _function)


def _enter_position(name: str, function: Any) -> None:
    @relay_op(name)
    def build(
        data: relax.Expr,
        /,
        axis: Any = None,
        keepdims: bool = False,
        exclude: bool = False,
        select_last_index: bool = False,
    ) -> relax.Expr:
        axes = _axes(data, axis, exclude)
        single = axes[0] if len(axes) == 1 else None
        return relax.op.astype(emit(function(data, single, keepdims)), "int32")


for _name, _function in {"argmax": relax.op.argmax, "argmin": relax.op.argmin}.items():
    _enter_position(_name, _function)


@relay_op("variance")
def variance(
    data: relax.Expr,
    mean: relax.Expr,
    /,
    axis: Any = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
) -> relax.Expr:
    """Mean square distance from `mean`, which has the axes of `data`."""
    axes = _axes(data, axis, exclude)
    distance = emit(relax.op.subtract(data, mean))
    square = emit(relax.op.multiply(distance, distance))
    result = emit(relax.op.mean(square, axes, keepdims))
    if not unbiased:
        return result
    count = 1
    for a in axes:
        count *= data.ty.shape[a]
    return relax.op.multiply(result, scalar(int(count) / (int(count) - 1), data))


@relay_op("logsumexp")
def logsumexp(data: relax.Expr, /, axis: Any = None, keepdims: bool = False) -> relax.Expr:
    axes = axes_of(axis, rank(data))
    peak = emit(relax.op.max(data, axes, True))
    total = emit(relax.op.sum(emit(relax.op.exp(emit(relax.op.subtract(data, peak)))), axes, True))
    result = emit(relax.op.add(emit(relax.op.log(total)), peak))
    return result if keepdims else relax.op.squeeze(result, axes)


@relay_op("cumsum")
def cumsum(
    data: relax.Expr,
    /,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool | None = None,
) -> relax.Expr:
    return relax.op.cumsum(data, axis, dtype or None, bool(exclusive))


@relay_op("cumprod")
def cumprod(
    data: relax.Expr,
    /,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool | None = None,
) -> relax.Expr:
    return relax.op.cumprod(data, axis, dtype or None, bool(exclusive))


@relay_op("argsort")
def argsort(
    data: relax.Expr, /, axis: int = -1, is_ascend: bool = True, dtype: str = "int32"
) -> relax.Expr:
    return relax.op.argsort(data, axis, not is_ascend, dtype)


@relay_op("sort")
def sort(data: relax.Expr, /, axis: int = -1, is_ascend: bool = True) -> relax.Expr:
    return relax.op.sort(data, axis, not is_ascend)


@relay_op("topk", fields=lambda attrs: 2 if attrs.ret_type == "both" else None)
def topk(
    data: relax.Expr,
    /,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    is_ascend: bool = False,
    dtype: str = "int32",
) -> relax.Expr:
    return relax.op.topk(data, k, axis, ret_type, not is_ascend, dtype)
