"""Small TFLite files, written here: what the tests of that front end read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np
import tflite

TYPES = {
    "float32": tflite.TensorType.FLOAT32,
    "int8": tflite.TensorType.INT8,
    "uint8": tflite.TensorType.UINT8,
    "int16": tflite.TensorType.INT16,
    "int32": tflite.TensorType.INT32,
    "int64": tflite.TensorType.INT64,
}


@dataclass
class Tensor:
    """A tensor of the graph: a constant if it has data."""

    name: str
    shape: Sequence[int]
    dtype: str = "int8"
    scale: Any = None
    zero_point: Any = 0
    axis: int = 0
    data: Any = None


@dataclass
class Operator:
    """An operator: its code, options by their names in the schema, tensors by name."""

    code: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    options: str | None = None
    values: dict[str, Any] = field(default_factory=dict)


def tflite_bytes(
    tensors: Sequence[Tensor],
    operators: Sequence[Operator],
    inputs: Sequence[str],
    outputs: Sequence[str],
) -> bytes:
    """The file of a graph."""
    b = flatbuffers.Builder(1024)
    index = {tensor.name: position for position, tensor in enumerate(tensors)} | {"": -1}
    codes = sorted({op.code for op in operators})
    buffers = [_buffer(b, None)] + [_buffer(b, t) for t in tensors]
    made = [_tensor(b, t, position + 1) for position, t in enumerate(tensors)]
    ops = [_operator(b, op, codes.index(op.code), index) for op in operators]
    lists = {
        "Tensors": _offsets(b, tflite.SubGraphStartTensorsVector, made),
        "Operators": _offsets(b, tflite.SubGraphStartOperatorsVector, ops),
        "Inputs": b.CreateNumpyVector(np.array([index[n] for n in inputs], "int32")),
        "Outputs": b.CreateNumpyVector(np.array([index[n] for n in outputs], "int32")),
    }
    tflite.SubGraphStart(b)
    for name, vector in lists.items():
        getattr(tflite, f"SubGraphAdd{name}")(b, vector)
    subgraph = tflite.SubGraphEnd(b)
    subgraphs = _offsets(b, tflite.ModelStartSubgraphsVector, [subgraph])
    operator_codes = _offsets(
        b, tflite.ModelStartOperatorCodesVector, [_operator_code(b, code) for code in codes]
    )
    all_buffers = _offsets(b, tflite.ModelStartBuffersVector, buffers)
    tflite.ModelStart(b)
    tflite.ModelAddVersion(b, 3)
    tflite.ModelAddSubgraphs(b, subgraphs)
    tflite.ModelAddOperatorCodes(b, operator_codes)
    tflite.ModelAddBuffers(b, all_buffers)
    b.Finish(tflite.ModelEnd(b), file_identifier=b"TFL3")
    return bytes(b.Output())


def one_operator(
    code: str,
    inputs: Sequence[Tensor],
    output: Tensor,
    options: str | None = None,
    **values: Any,
) -> bytes:
    """The file of a single operator; tensors without data are inputs of the graph."""
    operator = Operator(code, [t.name for t in inputs], [output.name], options, values)
    graph_inputs = [t.name for t in inputs if t.data is None]
    return tflite_bytes([*inputs, output], [operator], graph_inputs, [output.name])


def _buffer(b: flatbuffers.Builder, tensor: Tensor | None) -> int:
    data = None
    if tensor is not None and tensor.data is not None:
        raw = np.ascontiguousarray(tensor.data, tensor.dtype).tobytes()
        data = b.CreateByteVector(raw)
    tflite.BufferStart(b)
    if data is not None:
        tflite.BufferAddData(b, data)
    return tflite.BufferEnd(b)


def _tensor(b: flatbuffers.Builder, tensor: Tensor, buffer: int) -> int:
    name = b.CreateString(tensor.name)
    shape = b.CreateNumpyVector(np.array(tensor.shape, "int32"))
    quantization = _quantization(b, tensor) if tensor.scale is not None else None
    tflite.TensorStart(b)
    tflite.TensorAddName(b, name)
    tflite.TensorAddShape(b, shape)
    tflite.TensorAddType(b, TYPES[tensor.dtype])
    tflite.TensorAddBuffer(b, buffer)
    if quantization is not None:
        tflite.TensorAddQuantization(b, quantization)
    return tflite.TensorEnd(b)


def _quantization(b: flatbuffers.Builder, tensor: Tensor) -> int:
    scale = np.atleast_1d(np.array(tensor.scale, "float32"))
    zero_point = np.broadcast_to(np.array(tensor.zero_point, "int64"), scale.shape)
    vectors = b.CreateNumpyVector(scale), b.CreateNumpyVector(np.ascontiguousarray(zero_point))
    tflite.QuantizationParametersStart(b)
    tflite.QuantizationParametersAddScale(b, vectors[0])
    tflite.QuantizationParametersAddZeroPoint(b, vectors[1])
    tflite.QuantizationParametersAddQuantizedDimension(b, tensor.axis)
    return tflite.QuantizationParametersEnd(b)


def _operator(b: flatbuffers.Builder, op: Operator, code: int, index: dict[str, int]) -> int:
    inputs = b.CreateNumpyVector(np.array([index[n] for n in op.inputs], "int32"))
    outputs = b.CreateNumpyVector(np.array([index[n] for n in op.outputs], "int32"))
    options = None
    if op.options is not None:
        getattr(tflite, f"{op.options}Start")(b)
        for name, value in op.values.items():
            getattr(tflite, f"{op.options}Add{name}")(b, value)
        options = getattr(tflite, f"{op.options}End")(b)
    tflite.OperatorStart(b)
    tflite.OperatorAddOpcodeIndex(b, code)
    tflite.OperatorAddInputs(b, inputs)
    tflite.OperatorAddOutputs(b, outputs)
    if options is not None:
        tflite.OperatorAddBuiltinOptionsType(b, getattr(tflite.BuiltinOptions, op.options))
        tflite.OperatorAddBuiltinOptions(b, options)
    return tflite.OperatorEnd(b)


def _operator_code(b: flatbuffers.Builder, code: str) -> int:
    number = getattr(tflite.BuiltinOperator, code)
    tflite.OperatorCodeStart(b)
    tflite.OperatorCodeAddDeprecatedBuiltinCode(b, min(number, 127))
    tflite.OperatorCodeAddBuiltinCode(b, number)
    tflite.OperatorCodeAddVersion(b, VERSIONS.get(code, 1))
    return tflite.OperatorCodeEnd(b)


#: Versions that know 8-bit signed codes, for runtimes that ask.
VERSIONS = {
    "ADD": 2,
    "AVERAGE_POOL_2D": 2,
    "CONCATENATION": 2,
    "CONV_2D": 3,
    "DEPTHWISE_CONV_2D": 3,
    "FULLY_CONNECTED": 4,
    "HARD_SWISH": 1,
    "LEAKY_RELU": 2,
    "LOGISTIC": 2,
    "MAXIMUM": 2,
    "MAX_POOL_2D": 2,
    "MEAN": 2,
    "MINIMUM": 2,
    "MUL": 2,
    "PAD": 2,
    "QUANTIZE": 2,
    "RELU": 2,
    "RELU6": 2,
    "RESIZE_BILINEAR": 3,
    "SOFTMAX": 2,
    "SUB": 2,
    "TANH": 2,
    "TRANSPOSE_CONV": 2,
}


def _offsets(b: flatbuffers.Builder, start: Any, offsets: Sequence[int]) -> int:
    start(b, len(offsets))
    for offset in reversed(offsets):
        b.PrependUOffsetTRelative(offset)
    return b.EndVector()
