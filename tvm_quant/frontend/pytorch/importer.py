"""From an exported program to a Relax module, with the names of its nodes."""

from __future__ import annotations

import warnings
from collections import defaultdict
from typing import Any

import torch
from torch import fx
from tvm import IRModule, relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from tvm_quant.errors import FrontendError
from tvm_quant.frontend.base import first_line
from tvm_quant.frontend.node_names import NodeNames
from tvm_quant.frontend.pytorch.quantized import Quantizers


def import_program(program: torch.export.ExportedProgram) -> IRModule:
    """The module; weights and buffers are constants, a single output stands alone.

    Raises:
        FrontendError: functions that TVM does not convert, with their nodes.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = program.run_decompositions()
        importer = _Importer(display_names(program.graph))
        importer.add_quantizers(program)
        mod = importer.from_exported_program(
            program,
            keep_params_as_input=False,
            unwrap_unit_return_tuple=True,
            no_bind_return_tuple=False,
            custom_convert_map=None,
        )
        # Codes that only a pair of quantize and dequantize had between them.
        mod = relax.transform.DeadCodeElimination(["main"])(mod)
    return importer.names.attach(mod)


def display_names(graph: fx.Graph) -> dict[fx.Node, str]:
    """Each layer as the user knows it: the path of its module, or the FX node's name.

    A module that holds others computes several layers, so its own calls keep their FX names.
    """
    paths = {node: _module_path(node) for node in graph.nodes}
    parts = [path.split(".") for path in set(paths.values())]
    holders = {".".join(part[:depth]) for part in parts for depth in range(len(part))}
    return {node: node.name if path in holders else path for node, path in paths.items()}


def _module_path(node: fx.Node) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    path, _kind = next(reversed(stack.values()), ("", ""))
    return str(path)


class _Importer(ExportedProgramImporter):
    """TVM's importer; whatever it stores for a node is recorded under the node's name."""

    def __init__(self, layers: dict[fx.Node, str]):
        super().__init__()
        self.layers = layers
        self.names = NodeNames(lambda var: self.block_builder.lookup_binding(var))
        self.env = _RecordingDict(self.names, layers)
        converters: dict[str, Any] = super().create_convert_map()
        self.convert_map = {name: self._guarded(convert) for name, convert in converters.items()}

    def add_quantizers(self, program: torch.export.ExportedProgram) -> None:
        """Converters of the quantizers that a quantized program calls."""
        quantizers = Quantizers(program, self.env, lambda: self.block_builder)
        for name, convert in quantizers.converters().items():
            self.convert_map[name] = self._guarded(convert)

    def _guarded(self, convert: Any) -> Any:
        """A converter whose failures name the node."""

        def guarded(node: fx.Node, *rest: Any) -> Any:
            try:
                return convert(node, *rest)
            except FrontendError:
                raise
            except Exception as error:
                layer = self.layers.get(node, node.name)
                raise FrontendError(
                    f"Cannot convert FX node '{node.name}' ({node.target}, layer '{layer}'): "
                    f"{first_line(error)}. Replace the function, or export the model to ONNX."
                ) from error

        return guarded

    def _check_unsupported_func_type(self, nodes: list[fx.Node]) -> None:
        missing: dict[str, list[str]] = defaultdict(list)
        for node in nodes:
            if node.op == "call_function" and node.target.__name__ not in self.convert_map:
                missing[node.target.__name__].append(self.layers.get(node, node.name))
        if not missing:
            return
        lines = [f"  {function}: {', '.join(names[:4])}" for function, names in missing.items()]
        raise FrontendError(
            "The PyTorch program calls functions that cannot be converted:\n"
            + "\n".join(lines)
            + "\nExport the model in inference mode (model.eval()), replace these functions, or "
            "export the model to ONNX."
        )


class _RecordingDict(dict[fx.Node, Any]):
    def __init__(self, names: NodeNames, layers: dict[fx.Node, str]):
        super().__init__()
        self._names = names
        self._layers = layers

    def __setitem__(self, node: fx.Node, value: Any) -> None:
        super().__setitem__(node, value)
        values = value if isinstance(value, list | tuple) else [value]
        expressions = [v for v in values if isinstance(v, relax.Expr)]
        self._names.claim(expressions, self._layers.get(node, node.name))
