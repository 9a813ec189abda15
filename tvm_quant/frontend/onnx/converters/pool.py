"""MaxPool and AveragePool with explicit padding."""

from __future__ import annotations

from tvm import relax

from tvm_quant.frontend.onnx.converters.node import Node
from tvm_quant.frontend.onnx.converters.pad import auto_pads

_MAX = {1: relax.op.nn.max_pool1d, 2: relax.op.nn.max_pool2d, 3: relax.op.nn.max_pool3d}
_AVERAGE = {1: relax.op.nn.avg_pool1d, 2: relax.op.nn.avg_pool2d, 3: relax.op.nn.avg_pool3d}


def max_pool(node: Node) -> relax.Expr:
    """Without the second output, the indices of the maxima."""
    if node.outputs > 1:
        raise ValueError("the second output of MaxPool (indices) is not supported")
    return _pool(node, _MAX)


def average_pool(node: Node) -> relax.Expr:
    """With or without the padding in the count."""
    return _pool(node, _AVERAGE)


def _pool(node: Node, operators: dict[int, object]) -> relax.Expr:
    rank = node.spatial_rank()
    kernel = [int(k) for k in node.attributes["kernel_shape"]]
    operator = operators[rank]
    assert callable(operator)
    return operator(
        node.data,
        pool_size=kernel,
        strides=list(node.attributes.get("strides", [1] * rank)),
        padding=auto_pads(node, kernel),
        dilation=list(node.attributes.get("dilations", [1] * rank)),
        ceil_mode=bool(node.attributes.get("ceil_mode", 0)),
        count_include_pad=bool(node.attributes.get("count_include_pad", 0)),
    )
