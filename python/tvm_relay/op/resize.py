"""Resizing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from tvm_quant.errors import UnsupportedError
from tvm_relay.op.base import emit, or_none, relay_op, shape
from tvm_relay.op.layout import axis_of

_METHODS = {"nearest_neighbor": "nearest_neighbor", "bilinear": "linear", "bicubic": "cubic"}


@relay_op("image.resize2d")
def resize2d(
    data: relax.Expr,
    /,
    size: Sequence[int],
    roi: Any = None,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "",
    cubic_alpha: float = -0.5,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: str | None = None,
) -> relax.Expr:
    """Nearest neighbours are rounded where corners are aligned, and down elsewhere."""
    if not rounding_method:
        aligned = coordinate_transformation_mode == "align_corners"
        rounding_method = "round" if aligned else "floor"
    return relax.op.image.resize2d(
        data,
        tuple(int(s) for s in size),
        roi=tuple(float(r) for r in roi) if roi else None,
        layout=layout,
        method=method,
        coordinate_transformation_mode=coordinate_transformation_mode,
        rounding_method=rounding_method,
        cubic_alpha=cubic_alpha,
        cubic_exclude=cubic_exclude,
        extrapolation_value=extrapolation_value,
        out_dtype=or_none(out_dtype),
    )


@relay_op("image.resize1d")
def resize1d(
    data: relax.Expr,
    /,
    size: Sequence[int],
    roi: Any = None,
    layout: str = "NCW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "",
    cubic_alpha: float = -0.5,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: str | None = None,
) -> relax.Expr:
    """As a picture of height 1."""
    if roi:
        raise UnsupportedError("image.resize1d with a region of interest is not converted.")
    axis = axis_of(layout, "W")
    flat = emit(relax.op.expand_dims(data, axis))
    resized = resize2d(
        flat,
        (1, *([size] if isinstance(size, int) else size)),
        None,
        layout.replace("W", "HW"),
        method,
        coordinate_transformation_mode,
        rounding_method,
        cubic_alpha,
        cubic_exclude,
        extrapolation_value,
        out_dtype,
    )
    return relax.op.squeeze(emit(resized), [axis])


@relay_op("nn.upsampling")
def upsampling(
    data: relax.Expr,
    /,
    scale_h: float = 1,
    scale_w: float = 1,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
) -> relax.Expr:
    if method not in _METHODS:
        raise UnsupportedError(f"nn.upsampling by '{method}'; expected one of {sorted(_METHODS)}.")
    height, width = (shape(data)[axis_of(layout, name)] for name in "HW")
    return resize2d(
        data,
        (round(height * scale_h), round(width * scale_w)),
        layout=layout,
        method=_METHODS[method],
        coordinate_transformation_mode="align_corners" if align_corners else "asymmetric",
    )
