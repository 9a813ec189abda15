"""Public functions of the old documentation that are made of several operators, or of none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm_relay.expr import Expr, TupleWrapper, as_expr, const
from tvm_relay.expr import Tuple as TupleExpr
from tvm_relay.op.base import OPS


def variance(
    data: Expr,
    axis: Any = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
    with_mean: Expr | None = None,
) -> Any:
    """Mean square distance from the mean, or from `with_mean`."""
    mean = with_mean if with_mean is not None else _call("mean", data, axis, True, exclude)
    return _call("variance", data, mean, axis, keepdims, exclude, unbiased)


def std(
    data: Expr,
    axis: Any = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
) -> Any:
    """Root of the variance."""
    return _call("sqrt", variance(data, axis, keepdims, exclude, unbiased))


def mean_variance(
    data: Expr,
    axis: Any = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
) -> TupleWrapper:
    """Mean and variance."""
    mean = _call("mean", data, axis, True, exclude)
    spread = variance(data, axis, keepdims, exclude, unbiased, mean)
    first = mean if keepdims else _call("mean", data, axis, keepdims, exclude)
    return TupleWrapper(TupleExpr((first, spread)), 2)


def mean_std(
    data: Expr, axis: Any = None, keepdims: bool = False, exclude: bool = False
) -> TupleWrapper:
    """Mean and root of the variance."""
    mean, spread = mean_variance(data, axis, keepdims, exclude)
    return TupleWrapper(TupleExpr((mean, _call("sqrt", spread))), 2)


def arange(start: Any, stop: Any = None, step: Any = None, dtype: str = "float32") -> Any:
    """Numbers from `start`, or from 0, to before `stop`."""
    if stop is None:
        start, stop = const(0, dtype), start
    bounds = (start, stop, const(1, dtype) if step is None else step)
    return _call("arange", *map(as_expr, bounds), dtype)


def dropout_raw(data: Expr, rate: float = 0.5) -> TupleWrapper:
    """The operand and the mask of dropout."""
    return TupleWrapper(_call("nn.dropout", data, rate).tuple_value, 2)


def on_device(
    body: Expr, device: Any, constrain_result: bool = False, constrain_body: bool = True
) -> Expr:
    """The value itself: a network runs on one device."""
    return as_expr(body)


def device_copy(data: Expr, src_device: Any, dst_device: Any) -> Expr:
    """The value itself: a network runs on one device."""
    return as_expr(data)


#: Public name: function.
COMPOSED: dict[str, Callable[..., Any]] = {
    "annotation.on_device": on_device,
    "arange": arange,
    "device_copy": device_copy,
    "mean_std": mean_std,
    "mean_variance": mean_variance,
    "nn.const": const,
    "nn.dropout_raw": dropout_raw,
    "std": std,
    "variance": variance,
}


def _call(name: str, *args: Any) -> Any:
    return OPS[name].call(*args)
