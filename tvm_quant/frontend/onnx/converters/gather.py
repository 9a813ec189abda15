"""Gather without shape arithmetic around it."""

from __future__ import annotations

import numpy as np
from tvm import relax

from tvm_quant.frontend.onnx.converters.node import Node


def gather(node: Node) -> relax.Expr | None:
    """A slice for one constant index, else `take`, which wraps negative indices by itself."""
    data, index = node.data, node.constant(1)
    if isinstance(data, relax.ShapeExpr):
        return _gather_dimensions(data, index)
    if not isinstance(data.ty, relax.TensorType) or node.input(1) is None:
        return None
    axis = int(node.attributes.get("axis", 0)) % len(node.shape())
    size = node.shape()[axis]
    if index is not None and index.ndim == 0 and (index >= 0 or size is not None):
        at = int(index) if index >= 0 else int(index) + int(size or 0)
        part = node.builder.emit(relax.op.strided_slice(data, [axis], [at], [at + 1]))
        return relax.op.squeeze(part, [axis])
    if index is not None and index.size and index.min() >= 0:
        return relax.op.take(data, node.inputs[1], axis, mode="fast")
    indices = node.inputs[1]
    if isinstance(indices, relax.ShapeExpr):
        indices = node.builder.emit(relax.op.shape_to_tensor(indices))
    return relax.op.take(data, indices, axis, mode="wrap")


def _gather_dimensions(shape: relax.ShapeExpr, index: np.ndarray | None) -> relax.Expr | None:
    """Some dimensions of a shape, as a shape, so that they stay symbolic."""
    if index is None or index.ndim != 1:
        return None
    return relax.ShapeExpr([shape.values[int(i)] for i in index])
