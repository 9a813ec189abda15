"""MatMulNBits: a matrix product with weights of few bits, in blocks of one scale each."""

from __future__ import annotations

import numpy as np
from tvm import relax

from tvm_quant.frontend.onnx.converters.node import Node
from tvm_quant.frontend.onnx.converters.quantized.codes import quantized_constant
from tvm_quant.frontend.onnx.converters.quantized.linear import BLOCKS
from tvm_quant.frontend.onnx.converters.quantized.place import Array, Grid, checked_scale
from tvm_quant.ir import constant
from tvm_quant.op import QuantSpec


def matmul_nbits(node: Node) -> relax.Expr:
    """Inputs: a, packed b (N, blocks, bytes), scales, zero points, group index, bias.

    Where one block holds all of a row, b is a quantized constant; otherwise a float one.
    """
    if node.input(4) is not None:
        raise ValueError("it has a group index (g_idx), which is not supported")
    depth, columns = int(node.attributes["K"]), int(node.attributes["N"])
    bits, block = int(node.attributes.get("bits", 4)), int(node.attributes["block_size"])
    if bits not in (2, 4, 8):
        raise ValueError(f"its weights have {bits} bits; expected 2, 4 or 8")
    blocks = -(-depth // block)
    codes = _unpacked(node.known(1, "weights"), bits)[: columns * blocks * block]
    codes = codes.reshape(columns, blocks, block)
    scale = checked_scale(node.known(2, "scale")).reshape(columns, blocks, 1)
    zero_point = _zero_points(node, bits, columns, blocks)
    weight = _weight(node, codes, scale, zero_point, depth)
    result = relax.op.matmul(node.data, weight)
    if node.input(5) is None:
        return result
    return relax.op.add(node.emit(result), node.required(5))


def _weight(node: Node, codes: Array, scale: Array, zero_point: Array, depth: int) -> relax.Expr:
    whole = np.issubdtype(zero_point.dtype, np.integer)
    if codes.shape[1] > 1 or not whole:
        node.reasons[node.identifier] = BLOCKS
        real = (codes.astype("float32") - zero_point) * scale
        return constant(real.reshape(len(codes), -1)[:, :depth].T.astype("float32"))
    grid = Grid(
        scale=scale.reshape(1, -1),
        zero_point=zero_point.reshape(1, -1),
        spec=QuantSpec(signed=False, axis=1, symmetric=False),
    )
    return quantized_constant(node, codes.reshape(len(codes), -1)[:, :depth].T, grid)


def _zero_points(node: Node, bits: int, columns: int, blocks: int) -> Array:
    if node.input(3) is None:
        return np.full((columns, blocks, 1), 1 << (bits - 1), "int64")
    known = node.known(3, "zero points")
    if known.dtype != np.uint8:
        return known.reshape(columns, blocks, 1)
    rows = _unpacked(known.reshape(columns, -1), bits).reshape(columns, -1)
    return rows[:, :blocks, None].astype("int64")


def _unpacked(packed: Array, bits: int) -> Array:
    """Codes of a byte each, the lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype="uint8")
    return np.asarray((packed[..., None] >> shifts) & ((1 << bits) - 1)).reshape(-1)
