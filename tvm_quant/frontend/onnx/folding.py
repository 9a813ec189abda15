"""Folding of ONNX nodes with constant inputs, by ONNX's own NumPy reference.

Exporters compute shapes with chains of Shape, Gather, Mul and Concat. With static shapes all of it
is constant, and the converters need it to be: a Reshape to a computed shape would become dynamic.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import NodeProto
from onnx.reference import ReferenceEvaluator
from tvm import relax

from tvm_quant.ir import constant_value, tensor_shape

# fmt: off
_FOLDABLE = frozenset({
    "Abs", "Add", "And", "Cast", "Ceil", "Concat", "Constant", "ConstantOfShape", "CumSum",
    "Div", "Equal", "Exp", "Expand", "Flatten", "Floor", "Gather", "GatherElements", "GatherND",
    "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Log", "Max", "Min", "Mod", "Mul",
    "Neg", "NonZero", "Not", "OneHot", "Or", "Pad", "Pow", "Range", "Reciprocal", "ReduceMax",
    "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Round", "ScatterElements", "ScatterND",
    "Size", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Tile", "Transpose", "Trilu",
    "Unsqueeze", "Where", "Xor",
})
# fmt: on
_WIDER = {"int2": "int8", "uint2": "uint8", "int4": "int8", "uint4": "uint8"}
_MAX_ELEMENTS = 1 << 24


def fold_node(
    node: NodeProto, inputs: list[relax.Expr | None], opset: int
) -> list[relax.Expr] | None:
    """Constants for the node's outputs, or None if it has to be computed at run time."""
    if node.op_type == "Shape":
        return _static_shape(node, inputs[0])
    if node.op_type not in _FOLDABLE:
        return None
    values = [None if value is None else constant_value(value) for value in inputs]
    given = [value is not None for value in inputs]
    if [value is not None for value in values] != given:
        return None
    outputs = _evaluate(node, values, opset)
    if outputs is None or any(output.size > _MAX_ELEMENTS for output in outputs):
        return None
    return [relax.const(output, str(output.dtype)) for output in map(widened, outputs)]


def widened(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Integers of 2 and 4 bits, which TVM has no constants of, in 8."""
    return array.astype(_WIDER.get(str(array.dtype), array.dtype))


def _static_shape(node: NodeProto, data: relax.Expr | None) -> list[relax.Expr] | None:
    shape = tensor_shape(data) if data is not None else None
    if shape is None or None in shape:
        return None
    bounds = {attribute.name: attribute.i for attribute in node.attribute}
    part = shape[bounds.get("start") : bounds.get("end")]
    return [relax.const(np.array(part, "int64"), "int64")]


def _evaluate(
    node: NodeProto, values: list[npt.NDArray[Any] | None], opset: int
) -> list[npt.NDArray[Any]] | None:
    feeds = {
        name: value for name, value in zip(node.input, values, strict=True) if value is not None
    }
    try:
        evaluator = ReferenceEvaluator(node, opsets={"": opset})
        outputs = [np.asarray(output) for output in evaluator.run(None, feeds)]
    except Exception:  # the converter will try, or explain
        return None
    if any(output.dtype == object or output.dtype.kind in "US" for output in outputs):
        return None
    return outputs
