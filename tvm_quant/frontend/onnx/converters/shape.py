"""Operators that move data or do nothing at inference."""

from __future__ import annotations

import numpy as np
from tvm import relax

from tvm_quant.frontend.onnx.converters.node import Node


def identity(node: Node) -> relax.Expr | None:
    """The operand itself, a shape included."""
    return node.data


def dropout(node: Node) -> relax.Expr | None:
    """Nothing at inference; a mask of ones where it is asked for."""
    data = node.data
    if node.outputs < 2:
        return data
    return relax.Tuple([data, relax.op.ones(data.ty.shape, "bool")])


def tile(node: Node) -> relax.Expr | None:
    """By a constant number of repeats."""
    repeats = node.constant(1)
    if repeats is None:
        return None
    return relax.op.tile(node.data, [int(r) for r in np.atleast_1d(repeats)])
