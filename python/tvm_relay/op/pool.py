"""Pools."""

from __future__ import annotations

from typing import Any

from tvm import relax

from tvm_quant.errors import UnsupportedError
from tvm_relay.op.base import or_none, relay_op, shape
from tvm_relay.op.layout import per_axis, spatial

_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
_ADAPTIVE = {
    1: relax.op.nn.adaptive_avg_pool1d,
    2: relax.op.nn.adaptive_avg_pool2d,
    3: relax.op.nn.adaptive_avg_pool3d,
}
_MAX = {1: relax.op.nn.max_pool1d, 2: relax.op.nn.max_pool2d, 3: relax.op.nn.max_pool3d}
_AVG = {1: relax.op.nn.avg_pool1d, 2: relax.op.nn.avg_pool2d, 3: relax.op.nn.avg_pool3d}


def _enter_max(ndim: int) -> None:
    @relay_op(f"nn.max_pool{ndim}d")
    def build(
        data: relax.Expr,
        /,
        pool_size: Any = (1,) * ndim,
        strides: Any = (1,) * ndim,
        dilation: Any = (1,) * ndim,
        padding: Any = (0,) * ndim,
        layout: str = _LAYOUTS[ndim],
        out_layout: str = "",
        ceil_mode: bool = False,
    ) -> relax.Expr:
        return _MAX[ndim](
            data,
            **_window(ndim, pool_size=pool_size, strides=strides, dilation=dilation),
            padding=per_axis(padding, ndim),
            ceil_mode=ceil_mode,
            layout=layout,
            out_layout=or_none(out_layout),
        )


def _enter_avg(ndim: int) -> None:
    @relay_op(f"nn.avg_pool{ndim}d")
    def build(
        data: relax.Expr,
        /,
        pool_size: Any = (1,) * ndim,
        strides: Any = (1,) * ndim,
        dilation: Any = (1,) * ndim,
        padding: Any = (0,) * ndim,
        layout: str = _LAYOUTS[ndim],
        out_layout: str = "",
        ceil_mode: bool = False,
        count_include_pad: bool = False,
    ) -> relax.Expr:
        return _AVG[ndim](
            data,
            **_window(ndim, pool_size=pool_size, strides=strides, dilation=dilation),
            padding=per_axis(padding, ndim),
            ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
            layout=layout,
            out_layout=or_none(out_layout),
        )


def _enter_global(ndim: int) -> None:
    @relay_op(f"nn.global_avg_pool{ndim}d")
    def average(
        data: relax.Expr, /, layout: str = _LAYOUTS[ndim], out_layout: str = ""
    ) -> relax.Expr:
        return _ADAPTIVE[ndim](data, (1,) * ndim, layout, or_none(out_layout))

    @relay_op(f"nn.global_max_pool{ndim}d")
    def largest(
        data: relax.Expr, /, layout: str = _LAYOUTS[ndim], out_layout: str = ""
    ) -> relax.Expr:
        return relax.op.max(data, spatial(layout), True)


def _enter_adaptive(ndim: int) -> None:
    @relay_op(f"nn.adaptive_avg_pool{ndim}d")
    def average(
        data: relax.Expr,
        /,
        output_size: Any = None,
        layout: str = _LAYOUTS[ndim],
        out_layout: str = "",
    ) -> relax.Expr:
        size = _output(data, output_size, layout)
        return _ADAPTIVE[ndim](data, size, layout, or_none(out_layout))

    @relay_op(f"nn.adaptive_max_pool{ndim}d")
    def largest(
        data: relax.Expr,
        /,
        output_size: Any = None,
        layout: str = _LAYOUTS[ndim],
        out_layout: str = "",
    ) -> relax.Expr:
        size = _output(data, output_size, layout)
        extent = [shape(data)[axis] for axis in spatial(layout)]
        if any(e % s for e, s in zip(extent, size, strict=True)):
            raise UnsupportedError(
                f"nn.adaptive_max_pool{ndim}d from {extent} to {list(size)}: windows of several "
                "sizes; only whole multiples are converted."
            )
        window = tuple(e // s for e, s in zip(extent, size, strict=True))
        return _MAX[ndim](data, pool_size=window, strides=window, layout=layout)


for _ndim in _LAYOUTS:
    _enter_max(_ndim)
    _enter_avg(_ndim)
    _enter_global(_ndim)
    _enter_adaptive(_ndim)


def _window(ndim: int, **sizes: Any) -> dict[str, tuple[int, ...]]:
    return {name: per_axis(size, ndim) for name, size in sizes.items()}


def _output(data: relax.Expr, size: Any, layout: str) -> tuple[int, ...]:
    """The size asked for; without one, that of the operand."""
    axes = spatial(layout)
    if size is None or (hasattr(size, "__len__") and len(size) == 0):
        return tuple(shape(data)[axis] for axis in axes)
    return per_axis(size, len(axes))
