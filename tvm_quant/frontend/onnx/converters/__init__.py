"""Converters that replace those of TVM's importer.

TVM 0.27 turns Clip, Pad, automatic padding, Tile and others into opaque `call_tir` to generated
kernels although Relax has the operator, and passes cannot see through those. A converter here
returns None where it has nothing better, and TVM's takes over.
"""

from __future__ import annotations

from tvm import relax

from tvm_quant.frontend.onnx.converters import (
    broadcast,
    clip,
    conv,
    einsum,
    gather,
    pad,
    pool,
    prelu,
    shape,
    upsample,
)
from tvm_quant.frontend.onnx.converters.node import Converter, Node

CONVERTERS: dict[str, Converter] = {
    "Add": broadcast.aligned(relax.op.add),
    "AveragePool": pool.average_pool,
    "Clip": clip.clip,
    "Conv": conv.conv,
    "ConvTranspose": conv.conv_transpose,
    "Div": broadcast.aligned(relax.op.divide),
    "Dropout": shape.dropout,
    "Einsum": einsum.einsum,
    "Gather": gather.gather,
    "Identity": shape.identity,
    "MaxPool": pool.max_pool,
    "Mul": broadcast.aligned(relax.op.multiply),
    "PRelu": prelu.prelu,
    "Pad": pad.pad,
    "Sub": broadcast.aligned(relax.op.subtract),
    "Tile": shape.tile,
    "Upsample": upsample.upsample,
}

__all__ = ["CONVERTERS", "Converter", "Node"]
