"""Converters that replace those of TVM's importer, and those of operators that it lacks.

TVM 0.27 turns Clip, Pad, automatic padding, Tile and others into opaque `call_tir` to generated
kernels although Relax has the operator, and passes cannot see through those. A converter here
returns None where it has nothing better, and TVM's takes over. Operators of quantized networks have
no other converter than the one here.
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
    resize,
    shape,
    upsample,
)
from tvm_quant.frontend.onnx.converters.node import Converter, Node
from tvm_quant.frontend.onnx.converters.quantized import (
    blocks,
    channels_last,
    finn,
    float_quant,
    integer,
    linear,
    pact,
    qoperator,
    quant,
)
from tvm_quant.frontend.onnx.domains import Family

_STANDARD: dict[str, Converter] = {
    "Add": broadcast.aligned(relax.op.add),
    "AveragePool": pool.average_pool,
    "Cast": integer.cast,
    "Clip": clip.clip,
    "Conv": conv.float_conv,
    "ConvInteger": integer.conv_integer,
    "ConvTranspose": conv.conv_transpose,
    "DequantizeLinear": linear.dequantize_linear,
    "Div": broadcast.aligned(relax.op.divide),
    "Dropout": shape.dropout,
    "DynamicQuantizeLinear": integer.dynamic_quantize_linear,
    "Einsum": einsum.einsum,
    "Gather": gather.gather,
    "Identity": shape.identity,
    "MatMulInteger": integer.matmul_integer,
    "MaxPool": pool.max_pool,
    "Mul": broadcast.aligned(relax.op.multiply),
    "PRelu": prelu.prelu,
    "Pad": pad.pad,
    "QLinearConv": qoperator.qlinear_conv,
    "QLinearMatMul": qoperator.qlinear_matmul,
    "QuantizeLinear": linear.quantize_linear,
    "Resize": resize.resize,
    "Sub": broadcast.aligned(relax.op.subtract),
    "Tile": shape.tile,
    "Upsample": upsample.upsample,
}

_MICROSOFT: dict[str, Converter] = {
    "DequantizeLinear": linear.dequantize_linear,
    "MatMulInteger16": integer.matmul_integer,
    "MatMulNBits": blocks.matmul_nbits,
    "QGemm": qoperator.qgemm,
    "QLinearAdd": qoperator.two_operands(relax.op.add),
    "QLinearAveragePool": qoperator.qlinear_average_pool,
    "QLinearConcat": qoperator.qlinear_concat,
    "QLinearGlobalAveragePool": qoperator.one_operand(qoperator.global_average_pool),
    "QLinearLeakyRelu": qoperator.one_operand(qoperator.leaky_relu),
    "QLinearMul": qoperator.two_operands(relax.op.multiply),
    "QLinearSigmoid": qoperator.one_operand(lambda _node, data: relax.op.sigmoid(data)),
    "QLinearSoftmax": qoperator.one_operand(qoperator.softmax),
    "QuantizeLinear": linear.quantize_linear,
}

_QONNX: dict[str, Converter] = {
    "BipolarQuant": quant.bipolar_quant,
    "FloatQuant": float_quant.float_quant,
    "IntQuant": quant.quant,
    "MultiThreshold": finn.multi_threshold,
    "Quant": quant.quant,
    "Trunc": quant.trunc,
}

_CHANNELS_LAST: dict[str, Converter] = {
    "BatchNormalization": channels_last.batch_normalization,
    "Conv": channels_last.conv,
    "MaxPool": channels_last.max_pool,
}

#: Converters by vocabulary and operator.
CONVERTERS: dict[tuple[Family, str], Converter] = {
    (family, operator): convert
    for family, table in (
        (Family.STANDARD, _STANDARD),
        (Family.MICROSOFT, _MICROSOFT),
        (Family.QONNX, _QONNX),
        (Family.CHANNELS_LAST, _CHANNELS_LAST),
        (Family.PACT, {"RequantShift": pact.requant_shift}),
        (Family.INTERNAL, {"Integers": pact.integers}),
    )
    for operator, convert in table.items()
}

#: Operators that tell a network that was quantized elsewhere.
QUANTIZED = frozenset(
    (family, operator)
    for family, operator in CONVERTERS
    if family in (Family.MICROSOFT, Family.QONNX, Family.PACT)
    or operator.startswith(("QLinear", "QuantizeLinear", "DequantizeLinear", "Dynamic"))
    or operator.endswith("Integer")
)

#: Operators that move elements, and so may move codes.
MOVES = frozenset(
    {
        *("Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool"),
        *("Reshape", "Slice", "SpaceToDepth", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
    }
)

__all__ = ["CONVERTERS", "MOVES", "QUANTIZED", "Converter", "Family", "Node"]
