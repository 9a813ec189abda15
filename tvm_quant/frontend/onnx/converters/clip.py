"""Clip: `relax.clip` with scalar bounds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from tvm_quant.frontend.onnx.converters.node import Node
from tvm_quant.frontend.onnx.converters.quantized.codes import coded, narrowed
from tvm_quant.ir import constant, constant_value

Array = npt.NDArray[Any]


def clip(node: Node) -> relax.Expr | None:
    """Bounds from attributes (before opset 11) or constant inputs; open where missing or NaN."""
    data = node.data
    if node.opset < 11:
        low = node.attributes.get("min", -math.inf)
        high = node.attributes.get("max", math.inf)
        return relax.op.clip(data, float(low), float(high))
    if node.is_computed(1) or node.is_computed(2):
        return _clip_to_tensors(node)
    low, high = node.constant(1), node.constant(2)
    if str(data.ty.dtype).startswith(("int", "uint")):
        return _clip_integers(node, low, high)
    return relax.op.clip(data, _bound(low, -math.inf), _bound(high, math.inf))


def _clip_integers(node: Node, low: Array | None, high: Array | None) -> relax.Expr:
    """Bounds of codes narrow the quantizer that made them, as QCDQ means it."""
    limits = np.iinfo(str(node.data.ty.dtype))
    bounds = _integer(low, limits.min), _integer(high, limits.max)
    known = constant_value(node.data)
    if known is not None:
        return constant(np.clip(known, *bounds))
    origin = coded(node, node.data)
    clipped = None if origin is None else narrowed(node, origin, *bounds)
    return relax.op.clip(node.data, *bounds) if clipped is None else clipped


def _clip_to_tensors(node: Node) -> relax.Expr:
    """Bounds that are computed at run time."""
    result = node.data
    if node.input(1) is not None:
        result = node.builder.emit(relax.op.maximum(result, node.input(1)))
    if node.input(2) is not None:
        result = node.builder.emit(relax.op.minimum(result, node.input(2)))
    return result


def _bound(value: npt.NDArray[np.generic] | None, missing: float) -> float:
    if value is None or value.size != 1 or math.isnan(value.item()):
        return missing
    return float(value.item())


def _integer(value: npt.NDArray[np.generic] | None, missing: int) -> int:
    return int(missing if value is None or value.size != 1 else value.item())
