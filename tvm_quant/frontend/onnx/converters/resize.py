"""Resize of images whose channels stand last; all others are TVM's."""

from __future__ import annotations

import math

from tvm import relax

from tvm_quant.frontend.onnx.converters.node import Node

_METHODS = {"nearest": "nearest_neighbor", "linear": "linear"}
_ROUNDINGS = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


def resize(node: Node) -> relax.Expr | None:
    """By constant factors, or to a constant size."""
    method = _METHODS.get(node.attributes.get("mode", "nearest"))
    rounding = str(node.attributes.get("nearest_mode", "round_prefer_floor"))
    if node.opset < 11 or method is None or rounding not in _ROUNDINGS or len(node.shape()) != 4:
        return None
    size = _size(node)
    before = node.shape()
    if size is None or None in before or size[1] == before[1] or size[3] != before[3]:
        return None
    if size[0] != before[0]:
        return None
    return relax.op.image.resize2d(
        node.data,
        size=relax.ShapeExpr(size[1:3]),
        layout="NHWC",
        method=method,
        coordinate_transformation_mode=node.attributes.get(
            "coordinate_transformation_mode", "half_pixel"
        ),
        rounding_method=rounding if method == "nearest_neighbor" else "",
    )


def _size(node: Node) -> list[int] | None:
    sizes, scales = node.constant(3), node.constant(2)
    if sizes is not None and sizes.size == 4:
        return [int(n) for n in sizes]
    if scales is None or scales.size != 4:
        return None
    shape = node.shape()
    return [math.floor((n or 0) * float(s)) for n, s in zip(shape, scales, strict=True)]
