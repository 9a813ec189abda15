"""Upsample, which Resize replaced in opset 10."""

from __future__ import annotations

import math

from tvm import relax

from tvm_quant.frontend.onnx.converters.node import Node

_METHODS = {"nearest": "nearest_neighbor", "linear": "linear", "bilinear": "linear"}


def upsample(node: Node) -> relax.Expr | None:
    """Of images of known size: output = floor(input * scale), coordinates x_in = x_out / scale."""
    scales = node.attributes.get("scales") if node.opset < 9 else node.constant(1)
    if scales is None or node.spatial_rank() != 2:
        return None
    size = [_scaled(n, float(s)) for n, s in zip(node.shape()[2:], scales[2:], strict=True)]
    return relax.op.image.resize2d(
        node.data,
        size=relax.ShapeExpr(size),
        layout="NCHW",
        method=_METHODS[node.attributes.get("mode", "nearest")],
        coordinate_transformation_mode="asymmetric",
        rounding_method="floor",
    )


def _scaled(size: int | None, scale: float) -> int:
    if size is None:
        raise ValueError("the size of the image is open; fix it with shapes={...}")
    return math.floor(size * scale)
