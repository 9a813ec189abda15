"""From an ONNX model to a Relax module: TVM's importer with our converters, names and scopes."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

import tvm
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper
from tvm import IRModule, relax
from tvm.ir.expr import GenericConst
from tvm.relax.frontend.onnx import onnx_frontend

from tvm_quant.errors import FrontendError
from tvm_quant.frontend.base import first_line
from tvm_quant.frontend.node_names import NodeNames
from tvm_quant.frontend.onnx.converters import CONVERTERS, MOVES, Node
from tvm_quant.frontend.onnx.converters.quantized.codes import moved
from tvm_quant.frontend.onnx.converters.quantized.quant import QuantizerAttributeWarning
from tvm_quant.frontend.onnx.domains import family_of
from tvm_quant.frontend.onnx.folding import fold_node, widened
from tvm_quant.frontend.onnx.model import (
    attributes_of,
    opset_of,
    subgraphs,
    versions_of,
)
from tvm_quant.frontend.onnx.support import is_imported, is_quantized
from tvm_quant.ir.names import identifier
from tvm_quant.ir.reasons import with_reasons
from tvm_quant.op import ANNOTATED

# Operators whose converters take the shape of a tensor symbolically.
# fmt: off
_TAKES_SHAPES = frozenset({
    "Cast", "CastLike", "Concat", "ConstantOfShape", "Equal", "Expand", "Gather", "Reshape",
    "Resize", "Shape", "Slice", "Squeeze", "Where",
})
# fmt: on
# Operators whose single output is itself a tuple.
# fmt: off
_RETURNS_TUPLE = frozenset({
    "ConcatFromSequence", "Optional", "OptionalGetElement", "SequenceConstruct",
    "SequenceEmpty", "SequenceErase", "SequenceInsert", "SplitToSequence",
})
# fmt: on

# Integers without a type in TVM are held by those of 8 bits. Those of 2 are as old as opset 25.
_SMALL_INTEGERS = {
    getattr(TensorProto, name): bits
    for name, bits in (("INT4", 4), ("UINT4", 4), ("INT2", 2), ("UINT2", 2))
    if hasattr(TensorProto, name)
}


def import_model(model: ModelProto, *, float_sums: bool = False) -> IRModule:
    """The module of a model from `read_model`.

    Args:
        model: checked, of the newest form.
        float_sums: convolutions add float32 products in ONNX Runtime's order.

    Raises:
        FrontendError: a node that cannot be converted, by name.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", QuantizerAttributeWarning)
        importer = _Importer(versions_of(model), float_sums=float_sums)
        mod = importer.from_onnx(model.graph, opset_of(model))
    mod = importer.names.attach(mod)
    if importer.reasons:
        mod["main"] = with_reasons(mod["main"], importer.reasons)
    if not is_quantized(model.graph):
        return mod
    mod["main"] = mod["main"].with_attr(ANNOTATED, True)
    return relax.transform.DeadCodeElimination()(mod)  # codes that nobody asked for


class _Importer(onnx_frontend.ONNXGraphImporter):
    """TVM's importer; a variable for each node's result, branches in scopes of their own."""

    def __init__(self, versions: dict[str, int], *, float_sums: bool) -> None:
        super().__init__(shape_dict={}, dtype_dict={}, sanitize=False)
        self._nodes: dict[str, relax.Expr] = {}
        self._bits: dict[str, int] = {}
        self._sums: dict[relax.Expr, relax.Expr] = {}
        self._versions = versions
        self._float_sums = float_sums
        self.reasons: dict[str, str] = {}
        self.names = NodeNames(self.bb.lookup_binding)

    def _check_for_unsupported_ops(self, graph: GraphProto) -> None:
        """`read_model` has refused them already, with better words."""

    def _parse_array(self, tensor_proto: TensorProto) -> tvm.runtime.Tensor:
        bits = _SMALL_INTEGERS.get(tensor_proto.data_type)
        if bits is not None:
            self._bits[tensor_proto.name] = bits
        try:
            return tvm.runtime.tensor(widened(numpy_helper.to_array(tensor_proto)))
        except Exception as error:
            raise FrontendError(
                f"Weight '{tensor_proto.name}' of shape {tuple(tensor_proto.dims)} cannot be read: "
                f"{first_line(error)}. The model is damaged, or the type has no form in TVM."
            ) from error

    def _construct_nodes(self, graph: GraphProto) -> None:
        self._convert_nodes(graph.node)
        for output in graph.output:
            self._nodes[output.name] = self._as_tensor(self._value(output.name))

    def _convert_nodes(self, nodes: Iterable[NodeProto]) -> None:
        for node in nodes:
            inputs = [self._value(name) if name else None for name in node.input]
            try:
                results = self._results(node, inputs)
            except FrontendError:
                raise
            except Exception as error:
                raise FrontendError(self._failure(node, inputs, error)) from error
            self.names.claim([r for r in results if isinstance(r, relax.Expr)], node.name)
            self._nodes.update(zip(node.output, results, strict=False))
            self._carry_bits(node)

    def _value(self, name: str) -> relax.Expr:
        if name not in self._nodes:
            raise FrontendError(
                f"Tensor '{name}' is used before any node computes it; the model is damaged or its "
                "nodes are not in topological order (onnx.checker.check_model tells where)."
            )
        return self._nodes[name]

    def _results(self, node: NodeProto, inputs: list[relax.Expr | None]) -> list[relax.Expr]:
        if node.op_type == "If":
            return self._if(node, inputs[0])
        folded = fold_node(node, inputs, self.opset)
        if folded is not None:
            return folded
        if node.op_type not in _TAKES_SHAPES:
            inputs = [self._as_tensor(value) for value in inputs]
        return self._bind(node, self._convert(node, inputs))

    def _convert(self, node: NodeProto, inputs: list[relax.Expr | None]) -> relax.Expr:
        request = self._request(node, inputs)
        if node.op_type in MOVES:
            result = moved(request, lambda values: self._convert(node, values))
            if result is not None:
                return result
        family = family_of(node)
        convert = CONVERTERS.get((family, node.op_type))
        if convert is not None:
            result = convert(request)
            if result is not None:
                return result
        if not is_imported(family, node.op_type):
            raise ValueError("this form of the operator is not supported")
        attrs = self._parse_attr(node.attribute)
        attrs["tvm_custom"] = {"name": node.name, "num_outputs": len(node.output)}
        operands = onnx_frontend.onnx_input(inputs)
        return self._convert_operator(node.op_type, operands, attrs, self.opset)

    def _request(self, node: NodeProto, inputs: list[relax.Expr | None]) -> Node:
        version = self.opset if node.domain == "" else self._versions.get(node.domain, 1)
        return Node(
            self.bb,
            inputs,
            attributes_of(node),
            self.opset,
            len(node.output),
            name=node.name,
            version=version,
            bits=tuple(self._bits.get(name) for name in node.input),
            names=tuple(node.input),
            reasons=self.reasons,
            sums=self._sums,
            float_sums=self._float_sums,
        )

    def _carry_bits(self, node: NodeProto) -> None:
        """What moves integers of few bits gives such, and so does a constant of them."""
        bits = self._bits.get(node.input[0]) if node.input else _bits_of_constant(node)
        if bits is not None and (node.op_type in MOVES or node.op_type == "Constant"):
            self._bits.update(dict.fromkeys(node.output, bits))

    def _bind(self, node: NodeProto, result: relax.Expr) -> list[relax.Expr]:
        """Variables for the node's results, so that each has a name and is computed once."""
        if node.op_type in _RETURNS_TUPLE:
            return [result]
        if isinstance(result, relax.Tuple):
            fields = list(result.fields)
        else:
            result = self._emit(node, result)
            fields = _fields_of(result)
        return [self._emit(node, field) for field in fields[: len(node.output)]]

    def _emit(self, node: NodeProto, value: relax.Expr) -> relax.Expr:
        if not isinstance(value, relax.Call | relax.TupleGetItem | relax.If):
            return value
        value = self.bb.normalize(value)
        if not isinstance(value.ty, relax.TensorType | relax.TupleType):
            return value
        return self.bb.emit(value, name_hint=identifier(node.name))

    def _as_tensor(self, value: relax.Expr | None) -> relax.Expr | None:
        if isinstance(value, relax.Expr) and isinstance(value.ty, relax.ShapeType):
            return self.bb.emit(relax.op.shape_to_tensor(value))
        return value

    def _if(self, node: NodeProto, condition: relax.Expr) -> list[relax.Expr]:
        bodies = {a.name: body for a, body in zip(node.attribute, subgraphs(node), strict=True)}
        then_branch = self._branch(bodies["then_branch"])
        else_branch = self._branch(bodies["else_branch"])
        result = relax.If(_as_scalar(self.bb, condition), then_branch, else_branch)
        return self._bind(node, result)

    def _branch(self, graph: GraphProto) -> relax.SeqExpr:
        """The body of a branch; its nodes are computed only when the branch is taken."""
        outer = dict(self._nodes)
        self.bb._begin_binding_block()
        for tensor in graph.initializer:
            self._nodes[tensor.name] = relax.const(self._parse_array(tensor))
        self._convert_nodes(graph.node)
        results = [self._as_tensor(self._value(output.name)) for output in graph.output]
        body = self.bb.emit(results[0] if len(results) == 1 else relax.Tuple(results))
        block = self.bb._end_block()
        self._nodes = outer
        return relax.SeqExpr([block], body)

    def _failure(
        self, node: NodeProto, inputs: Sequence[relax.Expr | None], error: Exception
    ) -> str:
        operands = ", ".join(
            f"{name}: {_type_of(value)}" for name, value in zip(node.input, inputs, strict=True)
        )
        return (
            f"Cannot convert ONNX node '{node.name}' ({node.op_type}, opset {self.opset}; inputs "
            f"{operands or 'none'}): {first_line(error)}. Check the model with "
            "onnx.checker.check_model(path, full_check=True); if it passes, fix open dimensions "
            "with shapes={...}, or simplify the model so that the node disappears."
        )


def _bits_of_constant(node: NodeProto) -> int | None:
    types = [attribute.t.data_type for attribute in node.attribute if attribute.name == "value"]
    return _SMALL_INTEGERS.get(types[0]) if types else None


def _fields_of(result: relax.Expr) -> list[relax.Expr]:
    if isinstance(result, relax.Expr) and isinstance(result.ty, relax.TupleType):
        return [relax.TupleGetItem(result, i) for i in range(len(result.ty.fields))]
    return [result]


def _as_scalar(builder: relax.BlockBuilder, condition: relax.Expr) -> relax.Expr:
    """Relax wants a condition of rank 0; ONNX allows any shape of one element."""
    if condition.ty.ndim == 0:
        return condition
    return builder.emit(relax.op.reshape(condition, ()))


def _type_of(value: object) -> str:
    if isinstance(value, GenericConst):
        return f"constant {value.ty}"
    return str(value.ty) if isinstance(value, relax.Expr) else str(type(value).__name__)
