"""Reading an ONNX model and bringing it into the shape that the importer expects.

Every node gets a unique name, every open dimension a symbol of its own, model-local functions are
written out, and operators that nobody converts are refused with their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import onnx.inliner
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from tvm_quant.errors import FrontendError
from tvm_quant.frontend.base import Shapes, first_line
from tvm_quant.frontend.onnx.integers import mark_integers
from tvm_quant.frontend.onnx.support import expandable, refuse_unsupported


def read_model(source: object, shapes: Shapes | None = None) -> ModelProto:
    """A copy of the model, ready to import.

    Raises:
        FrontendError: damaged file, missing external data, unknown input in `shapes`, or an
            operator that cannot be converted.
    """
    model = _with_functions_inlined(_read(source))
    _check_tensors(model.graph)
    refuse_unsupported(model.graph)
    mark_integers(model.graph)
    _name_nodes(model.graph)
    _set_shapes(model.graph, shapes or {})
    _name_dimensions(model.graph)
    return model


def opset_of(model: ModelProto) -> int:
    """Version of the standard operator set that the model uses."""
    versions = [o.version for o in model.opset_import if o.domain in ("", "ai.onnx")]
    return int(max(versions, default=1))


def versions_of(model: ModelProto) -> dict[str, int]:
    """Version of each domain that the model imports; files use domains that they do not import."""
    return {opset.domain: int(opset.version) for opset in model.opset_import}


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """Bodies of a control-flow node."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def _read(source: object) -> ModelProto:
    if isinstance(source, str | Path):
        return _read_file(Path(source))
    model = ModelProto()
    if isinstance(source, bytes):
        _parse(model, source)
    else:
        model.CopyFrom(source)
    _check_not_empty(model, "this ONNX model")
    return model


def _read_file(path: Path) -> ModelProto:
    try:
        model = onnx.load(str(path))
    except Exception as error:
        raise FrontendError(
            f"{path} cannot be read as an ONNX model: {first_line(error)}. If its weights lie in a "
            "separate file, keep that file in the same folder."
        ) from error
    _check_not_empty(model, str(path))
    return model


def _parse(model: ModelProto, data: bytes) -> None:
    try:
        model.ParseFromString(data)
    except Exception as error:
        raise FrontendError(f"These {len(data)} bytes are no ONNX model: {error}") from error


def _check_not_empty(model: ModelProto, what: str) -> None:
    if not model.graph.output:
        raise FrontendError(f"{what} has a graph without outputs; it is damaged or no ONNX model.")


def _check_tensors(graph: GraphProto) -> None:
    for tensor in graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL and not tensor.HasField("raw_data"):
            raise FrontendError(
                f"Weight '{tensor.name}' lies in an external file that has not been loaded. Pass "
                "the path of the .onnx file, or load the model with onnx.load(path)."
            )
    if graph.sparse_initializer:
        raise FrontendError(
            f"Weight '{graph.sparse_initializer[0].values.name}' is stored as a sparse tensor, "
            "which is not supported; export it as a dense tensor."
        )


def _with_functions_inlined(model: ModelProto) -> ModelProto:
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    expand = expandable(model.graph)
    if not expand:
        return model
    return onnx.inliner.inline_selected_functions(
        model, [("", op) for op in sorted(expand)], inline_schema_functions=True
    )


def _name_nodes(graph: GraphProto, taken: set[str] | None = None) -> None:
    """Unique node names: the node's own, or that of its first output."""
    taken = set() if taken is None else taken
    for node in graph.node:
        output = next((name for name in node.output if name), node.op_type)
        name = node.name or output
        if name in taken:
            name = f"{name}:{output}"
        while name in taken:
            name += "_"
        node.name = name
        taken.add(name)
        for body in subgraphs(node):
            _name_nodes(body, taken)


def _set_shapes(graph: GraphProto, shapes: Shapes) -> None:
    """Fix the shapes of inputs; a symbol fixed by one input is fixed everywhere."""
    weights = {tensor.name for tensor in graph.initializer}
    inputs = {value.name: value for value in graph.input if value.name not in weights}
    symbols: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in inputs:
            raise FrontendError(
                f"The model has no input '{name}'; its inputs are {sorted(inputs)}."
            )
        proto = inputs[name].type.tensor_type.shape
        if proto.dim and len(proto.dim) != len(shape):
            raise FrontendError(
                f"Input '{name}' has rank {len(proto.dim)}, but shape {tuple(shape)} was given."
            )
        dims = list(proto.dim) or [proto.dim.add() for _ in shape]
        for dim, size in zip(dims, shape, strict=True):
            if dim.dim_param:
                symbols[dim.dim_param] = int(size)
            dim.dim_value = int(size)
    for value in inputs.values():
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in symbols:
                dim.dim_value = symbols[dim.dim_param]


def _name_dimensions(graph: GraphProto) -> None:
    """A symbol for each open dimension, so that two nameless ones are not taken for equal."""
    dims = [
        (value.name, axis, dim)
        for value in graph.input
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
    ]
    plain = {dim.dim_param for *_, dim in dims if dim.dim_param.isidentifier()}
    for name, axis, dim in dims:
        if dim.HasField("dim_value") and dim.dim_value > 0:
            continue
        if not dim.dim_param:
            dim.dim_param = f"{_symbol(name)}_dim{axis}"
        elif not _is_expression_of(dim.dim_param, plain):
            dim.dim_param = _symbol(dim.dim_param)


def _is_expression_of(text: str, symbols: set[str]) -> bool:
    tokens = [token.strip() for token in re.split(r"[+*/-]+", text)]
    return all(token.isdigit() or token in symbols for token in tokens)


def _symbol(text: str) -> str:
    clean = re.sub(r"\W", "_", text)
    return clean if clean.isidentifier() else f"d_{clean}"


def attributes_of(node: NodeProto) -> dict[str, Any]:
    """Attributes as Python values; strings as str."""
    values = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    return {k: v.decode() if isinstance(v, bytes) else v for k, v in values.items()}
