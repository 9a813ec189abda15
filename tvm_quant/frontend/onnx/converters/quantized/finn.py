"""FINN's MultiThreshold: how many thresholds an element reaches.

    y = out_scale #{k : x >= thresholds[channel, k]} + out_bias

The count is made of integers where the data is; what it stands for is a dequantize behind it.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from tvm import relax

from tvm_quant.frontend.onnx.converters.node import Node
from tvm_quant.frontend.onnx.converters.quantized.codes import from_codes
from tvm_quant.frontend.onnx.converters.quantized.place import Array, Grid
from tvm_quant.ir import constant
from tvm_quant.op import QuantSpec, threshold

#: Codes count parts of a step, so that the smallest value is a whole number of them.
MOST_PARTS = 4


def multi_threshold(node: Node) -> relax.Expr:
    """Inputs: data, thresholds (channels or 1, n)."""
    thresholds = np.sort(node.known(1, "thresholds").astype("float32"), axis=-1)
    scale = float(node.attributes.get("out_scale", 1.0))
    bias = float(node.attributes.get("out_bias", 0.0))
    if scale <= 0 or thresholds.ndim != 2:
        raise ValueError(
            f"its scale is {scale:g} and its thresholds have shape {thresholds.shape}; expected a "
            "positive number and (channels, n)"
        )
    start = Fraction(bias / scale).limit_denominator(MOST_PARTS)
    exact = float(start) == bias / scale
    parts, low = (start.denominator, start.numerator) if exact else (1, 0)
    steps = np.repeat(_by_channel(node, thresholds), parts, axis=-1)
    spec = _spec(low, low + steps.shape[-1])
    codes = node.emit(threshold(node.data, steps, low=low, dtype=spec.dtype))
    grid = Grid(
        scale=np.asarray(scale / parts, "float32"), zero_point=np.zeros((), "int64"), spec=spec
    )
    real = from_codes(node, codes, grid)
    return real if exact else relax.op.add(real, constant(np.float32(bias)))


def _by_channel(node: Node, thresholds: Array) -> Array:
    if len(thresholds) == 1:
        return np.asarray(thresholds[0])
    rank = len(node.shape())
    last = str(node.attributes.get("data_layout", "NCHW")).endswith("C")
    channel = rank - 1 if last else 1
    if rank < 2 or node.shape()[channel] not in (None, len(thresholds)):
        raise ValueError(
            f"its thresholds are for {len(thresholds)} channels; the data has shape {node.shape()}"
        )
    shape = [1] * rank
    shape[channel] = len(thresholds)
    return thresholds.reshape(*shape, -1)


def _spec(low: int, high: int) -> QuantSpec:
    for bits in (8, 16):
        spec = QuantSpec(bits=bits)
        if spec.qmin <= low and high <= spec.qmax:
            return spec
    raise ValueError(f"it has {high - low} thresholds, more than codes of 16 bits tell apart")
