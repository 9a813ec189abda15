"""Whether a TFLite file holds what it says, before anything is read from it.

The flatbuffers library follows any offset and returns any length: a damaged file would be read as
another network, or for hours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import tflite

from tvm_quant.errors import FrontendError
from tvm_quant.frontend.base import first_line
from tvm_quant.frontend.tflite.grids import tensor_name

#: More elements are in no tensor, nor along an axis of one, nor under a window.
MOST_ELEMENTS, LONGEST_AXIS, WIDEST_WINDOW = 1 << 31, 1 << 24, 1 << 12

_BYTES = {
    tflite.TensorType.FLOAT32: 4,
    tflite.TensorType.FLOAT16: 2,
    tflite.TensorType.INT8: 1,
    tflite.TensorType.UINT8: 1,
    tflite.TensorType.INT16: 2,
    tflite.TensorType.INT32: 4,
    tflite.TensorType.INT64: 8,
    tflite.TensorType.BOOL: 1,
}


def verify(data: bytes) -> tflite.Model:
    """The model in `data`.

    Raises:
        FrontendError: the file is damaged, and where.
    """
    try:
        model = tflite.Model.GetRootAsModel(data, 0)
        _verify_model(model, len(data))
    except FrontendError:
        raise
    except Exception as error:  # the library raises whatever the bytes lead to
        raise FrontendError(f"The TFLite model is damaged: {first_line(error)}") from error
    return model


def _verify_model(model: tflite.Model, size: int) -> None:
    counts = {
        "subgraphs": model.SubgraphsLength(),
        "operator codes": model.OperatorCodesLength(),
        "buffers": model.BuffersLength(),
    }
    _expect_room(counts, size)
    if counts["subgraphs"] < 1:
        raise _damaged("it holds no subgraph")
    for index in range(counts["subgraphs"]):
        _verify_subgraph(model, model.Subgraphs(index), size)


def _verify_subgraph(model: tflite.Model, graph: tflite.SubGraph, size: int) -> None:
    tensors, operators = graph.TensorsLength(), graph.OperatorsLength()
    counts = {
        "tensors": tensors,
        "operators": operators,
        "inputs": graph.InputsLength(),
        "outputs": graph.OutputsLength(),
    }
    _expect_room(counts, size)
    _expect_indices("an input of the graph", _numbers(graph.InputsAsNumpy()), tensors)
    _expect_indices("a result of the graph", _numbers(graph.OutputsAsNumpy()), tensors)
    constant = {i for i in range(tensors) if _verify_tensor(model, graph.Tensors(i), i, size)}
    known = constant | set(_numbers(graph.InputsAsNumpy()))
    for position in range(operators):
        operator = graph.Operators(position)
        where = f"operator {position}"
        codes = [operator.OpcodeIndex()]
        _expect_indices(f"the code of {where}", codes, model.OperatorCodesLength())
        inputs, outputs = (
            _numbers(vector) for vector in (operator.InputsAsNumpy(), operator.OutputsAsNumpy())
        )
        _expect_indices(f"an input of {where}", [i for i in inputs if i != -1], tensors)
        _expect_indices(f"a result of {where}", outputs, tensors)
        _verify_window(operator, where)
        for index in inputs:
            if index != -1 and index not in known and not graph.Tensors(index).IsVariable():
                name = tensor_name(graph.Tensors(index), index)
                raise _damaged(f"{where} reads tensor '{name}', which nothing computes before it")
        known |= set(outputs)


def _verify_window(operator: tflite.Operator, where: str) -> None:
    if operator.BuiltinOptionsType() != tflite.BuiltinOptions.Pool2DOptions:
        return
    table, options = operator.BuiltinOptions(), tflite.Pool2DOptions()
    options.Init(table.Bytes, table.Pos)
    sizes = options.FilterHeight(), options.FilterWidth(), options.StrideH(), options.StrideW()
    if not all(1 <= size <= WIDEST_WINDOW for size in sizes):
        raise _damaged(f"{where} has a window and strides of {sizes}")


def _verify_tensor(model: tflite.Model, tensor: tflite.Tensor, index: int, size: int) -> bool:
    """Whether the tensor is a constant."""
    name = tensor_name(tensor, index)
    _expect_room({f"dimensions of '{name}'": tensor.ShapeLength()}, size)
    shape = _numbers(tensor.ShapeAsNumpy()) if tensor.ShapeLength() else []
    lengths = [abs(length) for length in shape]
    longest = max(lengths, default=0)
    wrong = min(shape, default=0) < -1 or longest > LONGEST_AXIS
    if wrong or math.prod(lengths) > MOST_ELEMENTS:
        raise _damaged(f"tensor '{name}' has the shape {tuple(shape)}")
    _expect_indices(f"the buffer of tensor '{name}'", [tensor.Buffer()], model.BuffersLength())
    quantization = tensor.Quantization()
    if quantization is not None:
        counts = {
            f"scales of '{name}'": quantization.ScaleLength(),
            f"zero points of '{name}'": quantization.ZeroPointLength(),
        }
        _expect_room(counts, size)
    length = model.Buffers(tensor.Buffer()).DataLength()
    width = _BYTES.get(tensor.Type())
    if length == 0:
        return math.prod(shape) == 0
    _expect_room({f"bytes of '{name}'": length}, size)
    if width is not None and tensor.Sparsity() is None and length != math.prod(shape) * width:
        raise _damaged(
            f"tensor '{name}' of shape {tuple(shape)} has {length} bytes; expected "
            f"{math.prod(shape) * width}"
        )
    return True


def _expect_room(counts: dict[str, int], size: int) -> None:
    for what, count in counts.items():
        if not 0 <= count <= size:
            raise _damaged(f"it says that there are {count} {what}")


def _expect_indices(what: str, indices: Iterable[int], count: int) -> None:
    for index in indices:
        if not 0 <= index < count:
            raise _damaged(f"{what} is number {index}, of {count}")


def _numbers(vector: object) -> list[int]:
    """Elements of a vector; one that is missing reads as the number 0."""
    return vector.tolist() if isinstance(vector, np.ndarray) else []


def _damaged(what: str) -> FrontendError:
    return FrontendError(f"The TFLite model is damaged: {what}. Copy or convert it again.")
