"""From the graph of an MXNet network to a Relax module, with the names of its nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tvm import IRModule, relax

from tvm_quant.errors import FrontendError
from tvm_quant.frontend.base import first_line
from tvm_quant.frontend.mxnet.converters import CONVERTERS, QUANTIZED, Grids, Node
from tvm_quant.frontend.mxnet.params import DTYPES
from tvm_quant.frontend.mxnet.source import Network
from tvm_quant.frontend.mxnet.symbol import Entry, SymbolNode
from tvm_quant.frontend.node_names import NodeNames
from tvm_quant.ir import constant
from tvm_quant.ir.names import identifier
from tvm_quant.op import ANNOTATED


def import_network(network: Network) -> IRModule:
    """The module; parameters are constants.

    Raises:
        FrontendError: an input without a shape, a node that cannot be converted, by name.
    """
    _refuse_unsupported(network)
    importer = _Importer(network)
    mod = importer.names.attach(importer.run())
    if any(node.operator in QUANTIZED for _, node in network.graph.needed()):
        mod["main"] = mod["main"].with_attr(ANNOTATED, True)
    return mod


class _Importer:
    """Converts one node after the other; a variable for each result."""

    def __init__(self, network: Network):
        self._network = network
        self._builder = relax.BlockBuilder()
        self._grids: Grids = {}
        self._results: dict[int, list[relax.Expr | None]] = {}
        self.names = NodeNames(self._builder.lookup_binding)

    def run(self) -> IRModule:
        """Build `main`."""
        inputs = self._inputs()
        with self._builder.function("main", list(inputs.values())):
            with self._builder.dataflow():
                for index, node in self._network.graph.needed():
                    self._results[index] = self._converted(node, inputs)
                heads = [self._head(entry) for entry in self._network.graph.heads]
                result = heads[0] if len(heads) == 1 else relax.Tuple(heads)
                result = self._builder.emit_output(result)
            self._builder.emit_func_output(result)
        return self._builder.get()

    def _inputs(self) -> dict[str, relax.Var]:
        """The variables without a value, {name: parameter of `main`}."""
        found = {}
        unknown = []
        for _, node in self._network.graph.needed():
            if not node.is_variable or node.name in self._network.params:
                continue
            shape = self._network.shapes.get(node.name) or _own_shape(node)
            if shape is None:
                unknown.append(node.name)
                continue
            dtype = self._network.dtypes.get(node.name) or _own_dtype(node)
            found[node.name] = relax.Var(identifier(node.name), relax.TensorType(shape, dtype))
        if unknown:
            raise FrontendError(
                f"No shape is known for {_some(unknown)}. Give the shapes of inputs: "
                f'shapes={{"{unknown[0]}": (1, 3, 224, 224)}} (--shape {unknown[0]}=1,3,224,224). '
                "A parameter among these names "
                "has no value: pass the .params file that belongs to the symbol."
            )
        return found

    def _converted(self, node: SymbolNode, inputs: dict[str, relax.Var]) -> list[relax.Expr | None]:
        if node.is_variable:
            given = inputs.get(node.name)
            return [constant(self._network.params[node.name]) if given is None else given]
        operands = [self._value(entry, node) for entry in node.inputs]
        request = Node(self._builder, node.name, node.attributes, operands, self._grids)
        try:
            results = CONVERTERS[node.operator](request)
            results = results if isinstance(results, list) else [results]
            bound = [self._bound(value, node) for value in results]
        except FrontendError:
            raise
        except Exception as error:
            raise FrontendError(_failure(node, operands, error)) from error
        self.names.claim([value for value in bound if value is not None], node.name)
        return bound

    def _bound(self, value: relax.Expr | None, node: SymbolNode) -> relax.Expr | None:
        """A variable named after the node for what is no variable yet."""
        if not isinstance(value, relax.Call | relax.TupleGetItem):
            return value
        return self._builder.emit(value, name_hint=identifier(node.name))

    def _value(self, entry: Entry, reader: SymbolNode) -> relax.Expr | None:
        results = self._results[entry.node]
        if entry.output >= len(results):
            source = self._network.graph.nodes[entry.node]
            raise FrontendError(
                f"Node '{reader.name}' ({reader.operator}) reads result {entry.output} of "
                f"'{source.name}' ({source.operator}), which is not computed at inference."
            )
        return results[entry.output]

    def _head(self, entry: Entry) -> relax.Expr:
        node = self._network.graph.nodes[entry.node]
        value = self._value(entry, node)
        if value is None:
            raise FrontendError(
                f"The network gives the range of the quantized tensor '{node.name}'; let it end in "
                "a dequantize."
            )
        return value


def _refuse_unsupported(network: Network) -> None:
    nodes: dict[str, list[str]] = defaultdict(list)
    for _, node in network.graph.needed():
        if not node.is_variable and node.operator not in CONVERTERS:
            nodes[node.operator].append(node.name)
    if not nodes:
        return
    lines = [f"  {operator}: {_some(names)}" for operator, names in nodes.items()]
    fused = any(operator.startswith("_sg_") for operator in nodes)
    advice = (
        "These are fused for one backend; save the network as it was before, with "
        "MXNET_SUBGRAPH_BACKEND=NONE."
        if fused
        else "Replace them by other operators, or end the network before them."
    )
    raise FrontendError(
        "The MXNet model uses operators that cannot be converted:\n"
        + "\n".join(lines)
        + f"\n{advice}"
    )


def _own_shape(node: SymbolNode) -> tuple[int, ...] | None:
    """The shape that the file gives a variable; sizes that it leaves open are 0 or -1."""
    if "__shape__" not in node.attributes:
        return None
    shape = node.attributes.sizes("__shape__")
    return shape if shape and min(shape) > 0 else None


def _own_dtype(node: SymbolNode) -> str:
    return DTYPES.get(node.attributes.integer("__dtype__", 0), "float32")


def _failure(node: SymbolNode, operands: Sequence[relax.Expr | None], error: Exception) -> str:
    types = ", ".join("a range" if value is None else str(value.ty) for value in operands)
    return (
        f"Cannot convert MXNet node '{node.name}' ({node.operator}; inputs {types or 'none'}): "
        f"{first_line(error)}. Check that the shapes given for the inputs are those of the network "
        "and that symbol and parameters belong together."
    )


def _some(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"
