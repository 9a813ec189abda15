"""Normalizations, as they are at inference."""

from __future__ import annotations

import numpy as np
from tvm import relax

from tvm_quant.frontend.mxnet.converters.node import Node
from tvm_quant.ir import constant

R = relax.op


def batch_norm(node: Node) -> relax.Expr:
    """Inputs: data, gamma, beta, moving mean, moving variance. Gamma is 1 unless the node says."""
    return batch_norm_with(node, 1e-3)


def batch_norm_with(node: Node, epsilon: float) -> relax.Expr:
    """The same with another epsilon for nodes that do not say theirs."""
    data, gamma, *rest = (node.operand(index) for index in range(5))
    if node.attributes.flag("output_mean_var"):
        raise ValueError("it gives mean and variance, which inference does not compute")
    if node.attributes.flag("fix_gamma", default=True):
        gamma = constant(np.ones(node.shape(1), str(gamma.ty.dtype)))
    result = R.nn.batch_norm(
        data,
        gamma,
        *rest,
        axis=node.axis("axis", 1),
        epsilon=node.attributes.number("eps", epsilon),
        training=False,
    )
    return relax.TupleGetItem(node.emit(result), 0)


def layer_norm(node: Node) -> relax.Expr:
    """Over one axis."""
    axis, epsilon = node.axis("axis", -1), node.attributes.number("eps", 1e-5)
    return R.nn.layer_norm(node.data, node.operand(1), node.operand(2), axis, epsilon)


def instance_norm(node: Node) -> relax.Expr:
    """Over all of each channel of each sample."""
    axes = list(range(2, node.rank()))
    mean = node.emit(R.mean(node.data, axes, keepdims=True))
    centred = node.emit(R.subtract(node.data, mean))
    variance = node.emit(R.mean(node.emit(R.multiply(centred, centred)), axes, keepdims=True))
    epsilon = node.scalar(node.attributes.number("eps", 1e-3))
    inverse = node.emit(R.rsqrt(node.emit(R.add(variance, epsilon))))
    shape = (1, -1, *[1] * len(axes))
    scaled = node.emit(R.multiply(node.emit(R.multiply(centred, inverse)), _as(node, 1, shape)))
    return R.add(scaled, _as(node, 2, shape))


def l2_normalization(node: Node) -> relax.Expr:
    """Divided by the length of a sample, of a pixel's channels, or of a channel."""
    axes = {
        "instance": list(range(1, node.rank())),
        "channel": [1],
        "spatial": list(range(2, node.rank())),
    }
    mode = node.attributes.text("mode", "instance")
    if mode not in axes:
        raise ValueError(f"its mode is '{mode}'; expected one of {', '.join(axes)}")
    square = node.emit(R.multiply(node.data, node.data))
    total = node.emit(R.sum(square, axes[mode], keepdims=True))
    epsilon = node.scalar(node.attributes.number("eps", 1e-10))
    return R.divide(node.data, node.emit(R.sqrt(node.emit(R.add(total, epsilon)))))


def local_response(node: Node) -> relax.Expr:
    """LRN: divided by a power of the squares of neighbouring channels."""
    size = node.attributes.integer("nsize")
    squares = node.emit(R.multiply(node.data, node.data))
    width = [0, 0, size // 2, size // 2, *[0, 0] * (node.rank() - 2)]
    padded, channels = node.emit(R.nn.pad(squares, width)), node.shape()[1]
    total = None
    for start in range(size):
        part = node.emit(R.strided_slice(padded, [1], [start], [start + channels]))
        total = part if total is None else node.emit(R.add(total, part))
    factor = node.scalar(node.attributes.number("alpha", 1e-4) / size)
    shifted = R.add(
        node.emit(R.multiply(total, factor)), node.scalar(node.attributes.number("knorm", 2.0))
    )
    power = R.power(node.emit(shifted), node.scalar(node.attributes.number("beta", 0.75)))
    return R.divide(node.data, node.emit(power))


def _as(node: Node, index: int, shape: tuple[int, ...]) -> relax.Var:
    return node.emit(R.reshape(node.operand(index), shape))
