"""Marking the integers in the float tensors of a network that says it has them.

The graphs of Deeploy, and those of FINN behind its streamlining, keep integer weights in float
tensors. A node `Integers` in front of each weight, and of the inputs of a Deeploy graph, lets the
importer place a quantizer there.
"""

from __future__ import annotations

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from tvm_quant.frontend.onnx.domains import Family, family_of

_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
#: Whose presence says that a network has integers in float tensors, and whether its inputs are too.
_WITNESSES = {(Family.PACT, "RequantShift"): True, (Family.QONNX, "MultiThreshold"): False}
_MOST = 1 << 15


def mark_integers(graph: GraphProto) -> None:
    """Add the nodes, where there is a witness."""
    found = {(family_of(node), node.op_type) for node in graph.node}
    inputs_too = [_WITNESSES[kind] for kind in found & set(_WITNESSES)]
    if not inputs_too:
        return
    weights = {tensor.name: tensor for tensor in graph.initializer}
    marks: dict[str, NodeProto] = {}
    for node in graph.node:
        if node.op_type not in _PRODUCTS or family_of(node) is not Family.STANDARD:
            continue
        for index, name in enumerate(node.input[:2]):
            if name in weights and _holds_integers(weights[name]):
                node.input[index] = _mark(marks, name)
    if any(inputs_too):
        _mark_inputs(graph, set(weights), marks)
    nodes = [*marks.values(), *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)


def _mark_inputs(graph: GraphProto, weights: set[str], marks: dict[str, NodeProto]) -> None:
    inputs = {
        value.name
        for value in graph.input
        if value.name not in weights and value.type.tensor_type.elem_type == TensorProto.FLOAT
    }
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name in inputs:
                node.input[index] = _mark(marks, name)


def _mark(marks: dict[str, NodeProto], name: str) -> str:
    marked = f"{name}:integers"
    if name not in marks:
        marks[name] = helper.make_node(
            "Integers", [name], [marked], name=marked, domain=Family.INTERNAL.value
        )
    return marked


def _holds_integers(tensor: TensorProto) -> bool:
    if tensor.data_type != TensorProto.FLOAT:
        return False
    array = numpy_helper.to_array(tensor)
    return bool(np.isfinite(array).all() and (array == np.rint(array)).all()) and bool(
        np.abs(array).max(initial=0) < _MOST
    )
