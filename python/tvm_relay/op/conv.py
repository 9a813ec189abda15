"""Convolutions."""

from __future__ import annotations

from typing import Any

from tvm import relax

from tvm_quant.errors import FrontendError
from tvm_relay.op.base import emit, or_none, relay_op, shape
from tvm_relay.op.layout import arrange, per_axis, spatial

Shape = tuple[Any, ...]


def _weights(data: Shape, _weight: Any, transposed: bool = False, **attrs: Any) -> dict[str, Shape]:
    if attrs["channels"] is None or attrs["kernel_size"] is None:
        raise FrontendError(
            "The weight has no type, and channels and kernel_size do not say its shape: give "
            "relay.var a shape."
        )
    return {"weight": arrange(attrs["kernel_layout"], _sizes(data, attrs, transposed))}


def _transposed_weights(data: Shape, weight: Any, **attrs: Any) -> dict[str, Shape]:
    return _weights(data, weight, transposed=True, **attrs)


def _sizes(data: Shape, attrs: Any, transposed: bool) -> dict[str, Any]:
    layout, groups = attrs["data_layout"], int(attrs["groups"])
    axes = [name for name in attrs["kernel_layout"] if name in "DHW"]
    kernel = per_axis(attrs["kernel_size"], len(axes))
    inputs, outputs = data[layout.index("C")], int(attrs["channels"])
    if transposed:
        outputs //= groups
    else:
        inputs //= groups
    by_order = sorted(axes, key="DHW".index)
    return {"O": outputs, "I": inputs, **dict(zip(by_order, kernel, strict=True))}


def _depthwise(data: relax.Expr, weight: relax.Expr, attrs: dict[str, Any]) -> relax.Expr:
    """Kernels (C, multiplier) of depthwise convolutions as Relax has them, (C * multiplier, 1)."""
    layout, groups = attrs["kernel_layout"], attrs["groups"]
    dims = dict(zip(layout, shape(weight), strict=True))
    channels = shape(data)[attrs["data_layout"].index("C")]
    if groups == 1 or groups != channels or dims["O"] != groups or dims["I"] == 1:
        return weight
    if layout.index("I") != layout.index("O") + 1:
        raise FrontendError(
            f"nn.conv2d: a depthwise kernel {shape(weight)} in layout {layout} with a channel "
            "multiplier; expected OIHW or HWOI."
        )
    wide = arrange(layout, {**dims, "O": dims["O"] * dims["I"], "I": 1})
    return emit(relax.op.reshape(weight, wide))


def _convolution(function: Any, data: relax.Expr, weight: relax.Expr, **attrs: Any) -> relax.Expr:
    weight = _depthwise(data, weight, attrs)
    return _call(function, data, weight, **attrs)


def _call(function: Any, data: relax.Expr, weight: relax.Expr, **attrs: Any) -> relax.Expr:
    count = len(spatial(attrs["data_layout"]))
    for name in ("channels", "kernel_size"):
        attrs.pop(name)
    for name in ("strides", "dilation", "output_padding"):
        if name in attrs:
            attrs[name] = per_axis(attrs[name], count)
    attrs["padding"] = per_axis(attrs["padding"], count)
    attrs["out_layout"] = or_none(attrs["out_layout"])
    attrs["out_dtype"] = or_none(attrs["out_dtype"])
    return function(data, weight, **attrs)


@relay_op("nn.conv1d", weights=_weights)
def conv1d(
    data: relax.Expr,
    weight: relax.Expr,
    /,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Any = None,
    data_layout: str = "NCW",
    kernel_layout: str = "OIW",
    out_layout: str = "",
    out_dtype: str = "",
) -> relax.Expr:
    return _convolution(relax.op.nn.conv1d, data, weight, **_arguments(locals()))


@relay_op("nn.conv2d", weights=_weights)
def conv2d(
    data: relax.Expr,
    weight: relax.Expr,
    /,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Any = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "",
) -> relax.Expr:
    return _convolution(relax.op.nn.conv2d, data, weight, **_arguments(locals()))


@relay_op("nn.conv3d", weights=_weights)
def conv3d(
    data: relax.Expr,
    weight: relax.Expr,
    /,
    strides: Any = (1, 1, 1),
    padding: Any = (0, 0, 0),
    dilation: Any = (1, 1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Any = None,
    data_layout: str = "NCDHW",
    kernel_layout: str = "OIDHW",
    out_layout: str = "",
    out_dtype: str = "",
) -> relax.Expr:
    return _convolution(relax.op.nn.conv3d, data, weight, **_arguments(locals()))


@relay_op("nn.conv1d_transpose", weights=_transposed_weights)
def conv1d_transpose(
    data: relax.Expr,
    weight: relax.Expr,
    /,
    strides: Any = (1,),
    padding: Any = (0,),
    dilation: Any = (1,),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Any = None,
    data_layout: str = "NCW",
    kernel_layout: str = "IOW",
    out_layout: str = "",
    output_padding: Any = (0,),
    out_dtype: str = "",
) -> relax.Expr:
    return _call(relax.op.nn.conv1d_transpose, data, weight, **_arguments(locals()))


@relay_op("nn.conv2d_transpose", weights=_transposed_weights)
def conv2d_transpose(
    data: relax.Expr,
    weight: relax.Expr,
    /,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Any = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "IOHW",
    out_layout: str = "",
    output_padding: Any = (0, 0),
    out_dtype: str = "",
) -> relax.Expr:
    return _call(relax.op.nn.conv2d_transpose, data, weight, **_arguments(locals()))


@relay_op("nn.conv3d_transpose", weights=_transposed_weights)
def conv3d_transpose(
    data: relax.Expr,
    weight: relax.Expr,
    /,
    strides: Any = (1, 1, 1),
    padding: Any = (0, 0, 0),
    dilation: Any = (1, 1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Any = None,
    data_layout: str = "NCDHW",
    kernel_layout: str = "IODHW",
    out_layout: str = "",
    output_padding: Any = (0, 0, 0),
    out_dtype: str = "",
) -> relax.Expr:
    return _call(relax.op.nn.conv3d_transpose, data, weight, **_arguments(locals()))


def _arguments(names: dict[str, Any]) -> dict[str, Any]:
    """The attributes among the local names of a row."""
    return {name: value for name, value in names.items() if name not in ("data", "weight")}
