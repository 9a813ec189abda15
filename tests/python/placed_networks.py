"""Small float networks, one for each thing that placement has to get right: `BODIES`."""

from typing import Any

import numpy as np
from tvm import IRModule, relax

from plain_tvm import Body, build

R, NN = relax.op, relax.op.nn


def weight(*shape: int) -> relax.Expr:
    return relax.const(np.ones(shape, "float32"))


def conv(bb: relax.BlockBuilder, x: relax.Expr, name: str, **attrs: Any) -> relax.Var:
    """1x1, bias, relu; 4 channels to 4."""
    y = bb.emit(NN.conv2d(x, weight(4, 4 // attrs.get("groups", 1), 1, 1), **attrs), name)
    biased = bb.emit(R.add(y, weight(1, 4, 1, 1)), f"{name}_bias")
    return bb.emit(NN.relu(biased), f"{name}_relu")


def residual(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    stem = conv(bb, x, "stem")
    total = bb.emit(R.add(conv(bb, stem, "body"), stem), "total")
    return conv(bb, total, "head")


def concat(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    parts = [conv(bb, x, "left"), conv(bb, x, "right")]
    pooled = bb.emit(NN.max_pool2d(conv(bb, x, "middle"), (3, 3), padding=1), "pooled")
    both = bb.emit(R.concat([*parts, pooled], axis=1), "both")
    return bb.emit(NN.conv2d(both, weight(4, 12, 1, 1)), "head")


def depthwise(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return conv(bb, conv(bb, conv(bb, x, "expand"), "depthwise", groups=4), "project")


def attention(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    query, key, value = (
        bb.emit(R.matmul(x, weight(4, 4)), name) for name in ("query", "key", "value")
    )
    turned = bb.emit(R.permute_dims(key, [0, 2, 1]), "turned")
    scores = bb.emit(NN.softmax(bb.emit(R.matmul(query, turned), "product")), "scores")
    mixed = bb.emit(R.matmul(scores, value), "mixed")
    return bb.emit(R.matmul(mixed, weight(4, 4)), "out_matmul")


def branch_to_output(bb: relax.BlockBuilder, x: relax.Var) -> Any:
    stem = conv(bb, x, "stem")
    return conv(bb, stem, "head"), stem


def silu(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    y = bb.emit(NN.conv2d(x, weight(4, 4, 1, 1)), "first")
    gate = bb.emit(R.sigmoid(y), "gate")
    return bb.emit(NN.conv2d(bb.emit(R.multiply(y, gate), "silu"), weight(4, 4, 1, 1)), "second")


BODIES: dict[str, Body] = {
    body.__name__: body for body in (residual, concat, depthwise, attention, branch_to_output, silu)
}


def placed_network(name: str) -> IRModule:
    """The network `name` of `BODIES`, as Prepare leaves it."""
    return build(BODIES[name], x=(1, 6, 4) if name == "attention" else (1, 4, 8, 8))
