"""Arithmetic before opset 7, where an attribute says along which axes the second operand lies."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from tvm_quant.frontend.onnx.converters.node import Converter, Node


def aligned(operator: Callable[..., relax.Expr]) -> Converter:
    """A converter that appends axes to the second operand; from opset 7 on TVM's is right."""

    def convert(node: Node) -> relax.Expr | None:
        axis = node.attributes.get("axis")
        if node.opset >= 7 or not node.attributes.get("broadcast") or axis is None:
            return None
        other, shape = node.input(1), node.shape(1)
        missing = len(node.shape()) - int(axis) % len(node.shape()) - len(shape)
        if missing < 0 or None in shape:
            raise ValueError("the second operand does not fit the axis that it is broadcast along")
        return operator(node.data, relax.op.reshape(other, [*shape, *[1] * missing]))

    return convert
