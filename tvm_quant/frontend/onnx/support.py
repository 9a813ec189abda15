"""Which ONNX operators can be converted, and a helpful refusal for the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import onnx
from onnx import AttributeProto, GraphProto, NodeProto
from tvm.relax.frontend.onnx import onnx_frontend

from tvm_quant.errors import FrontendError

STANDARD = ("", "ai.onnx")
# Operators of ONNX Runtime's own domain that TVM's importer knows.
CONTRIBUTED = {
    "Attention",
    "BiasGelu",
    "EmbedLayerNormalization",
    "FastGelu",
    "Gelu",
    "SkipLayerNormalization",
}
# In the standard domain these names mean something else than what the importer computes.
_HOMONYMS = {"Attention"}
# Operators of networks that are quantized already, which these front doors do not read.
_QUANTIZED = {
    "ConvInteger",
    "DequantizeLinear",
    "DynamicQuantizeLinear",
    "MatMulInteger",
    "MatMulInteger16",
    "QLinearConv",
    "QLinearMatMul",
    "QuantizeLinear",
}
_QUANTIZED_DOMAINS = ("qonnx.custom_op", "finn.custom_op", "onnx.brevitas")


def is_supported(node: NodeProto) -> bool:
    """Whether the node's operator can be converted."""
    if node.op_type in ("If", "Constant"):
        return True
    if node.op_type not in onnx_frontend._get_convert_map() or node.op_type in _QUANTIZED:
        return False
    if node.domain == "com.microsoft":
        return node.op_type in CONTRIBUTED
    return node.domain in STANDARD and node.op_type not in _HOMONYMS


def expandable(graph: GraphProto) -> set[str]:
    """Standard operators that cannot be converted but have a definition in simpler ones."""
    return {
        node.op_type
        for node in _all_nodes(graph)
        if node.domain in STANDARD and not is_supported(node) and _has_definition(node.op_type)
    }


def refuse_unsupported(graph: GraphProto) -> None:
    """Raise FrontendError naming each operator that cannot be converted, with its nodes."""
    nodes: dict[tuple[str, str], list[str]] = defaultdict(list)
    for node in _all_nodes(graph):
        if not is_supported(node):
            name = node.name or next(iter(node.output), "?")
            nodes[node.domain or "ai.onnx", node.op_type].append(name)
    if not nodes:
        return
    lines = [
        f"  {op} of domain '{domain}': {_some(names)}" for (domain, op), names in nodes.items()
    ]
    raise FrontendError(
        "The ONNX model uses operators that cannot be converted:\n"
        + "\n".join(lines)
        + f"\n{_advice(set(nodes))}"
    )


def _advice(operators: set[tuple[str, str]]) -> str:
    if any(op in _QUANTIZED or domain.startswith(_QUANTIZED_DOMAINS) for domain, op in operators):
        return (
            "These are quantizers of a network that is quantized already; export the float network "
            "instead."
        )
    return (
        "Export the network without them, or replace them by standard operators: constant folding "
        "(onnxsim, or ONNX Runtime's basic graph optimization saved to a file) removes many."
    )


def _some(names: list[str], limit: int = 4) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:limit])
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"node{'s' if len(names) > 1 else ''} {shown}{more}"


def _all_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _all_nodes(attribute.g)


def _has_definition(op: str) -> bool:
    if not onnx.defs.has(op):
        return False
    schema = onnx.defs.get_schema(op)
    return bool(schema.has_function or schema.has_context_dependent_function)
