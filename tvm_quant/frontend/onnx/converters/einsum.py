"""Einsum as the Relax operator."""

from __future__ import annotations

from tvm import relax

from tvm_quant.frontend.onnx.converters.node import Node


def einsum(node: Node) -> relax.Expr:
    """Any number of operands."""
    return relax.op.einsum(tuple(node.inputs), node.attributes["equation"].replace(" ", ""))
