"""Gather without shape arithmetic around it."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
from tvm import relax

from tvm_quant.frontend.onnx.converters.node import Node


def gather(node: Node) -> relax.Expr | None:
    """`take`, which wraps negative indices by itself; of a shape, its dimensions."""
    data, index = node.data, node.constant(1)
    if isinstance(data, relax.ShapeExpr):
        return _gather_dimensions(data, index)
    indices = node.input(1)
    if not isinstance(data.ty, relax.TensorType) or indices is None:
        return None
    if isinstance(indices, relax.ShapeExpr):
        indices = node.builder.emit(relax.op.shape_to_tensor(indices))
    axis = int(node.attributes.get("axis", 0)) % len(node.shape())
    return relax.op.take(data, indices, axis, mode="wrap")


def _gather_dimensions(shape: relax.ShapeExpr, index: npt.NDArray[Any] | None) -> relax.Expr | None:
    """Some dimensions of a shape, as a shape, so that they stay symbolic."""
    if index is None or index.ndim != 1:
        return None
    return relax.ShapeExpr([shape.values[int(i)] for i in index])
