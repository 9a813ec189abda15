"""Which ONNX operators can be converted, and a helpful refusal for the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import onnx
from onnx import AttributeProto, GraphProto, NodeProto
from tvm.relax.frontend.onnx import onnx_frontend

from tvm_quant.errors import FrontendError
from tvm_quant.frontend.onnx.converters import CONVERTERS, QUANTIZED
from tvm_quant.frontend.onnx.domains import Family, family_of

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
_QUANTIZED_DOMAINS = ("qonnx.custom_op", "finn.custom_op", "onnx.brevitas", "PACTOps")


def is_supported(node: NodeProto) -> bool:
    """Whether the node's operator can be converted."""
    if node.op_type in ("If", "Constant"):
        return True
    family = family_of(node)
    return (family, node.op_type) in CONVERTERS or is_imported(family, node.op_type)


def is_imported(family: Family, operator: str) -> bool:
    """Whether TVM's importer, which looks at names alone, means this operator by its name."""
    if operator not in onnx_frontend._get_convert_map():
        return False
    if family is Family.MICROSOFT:
        return operator in CONTRIBUTED
    return family is Family.STANDARD and operator not in _HOMONYMS


def is_quantized(graph: GraphProto) -> bool:
    """Whether the network brings quantizers."""
    return any((family_of(node), node.op_type) in QUANTIZED for node in _all_nodes(graph))


def expandable(graph: GraphProto) -> set[str]:
    """Standard operators that cannot be converted but have a definition in simpler ones."""
    return {
        node.op_type
        for node in _all_nodes(graph)
        if family_of(node) is Family.STANDARD
        and not is_supported(node)
        and _has_definition(node.op_type)
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
    known = {name for _, name in CONVERTERS}
    namesakes = sorted(f"{name} of '{domain}'" for domain, name in operators if name in known)
    if namesakes:
        return (
            f"Other domains have operators of these names ({', '.join(namesakes)}), whose "
            "meaning is not assumed to be the same. Known domains are "
            f"{', '.join(family.value for family in Family if family is not Family.OTHER)}."
        )
    if any(domain.startswith(_QUANTIZED_DOMAINS) for domain, _ in operators):
        return (
            "These are operators of a network that is quantized already, behind the export; export "
            "it with Quant, BipolarQuant or QuantizeLinear nodes alone."
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
