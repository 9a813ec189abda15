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


def import_program(program: torch.export.ExportedProgram) -> IRModule:
    """The module; weights and buffers are constants, a single output stands alone.

    Raises:
        FrontendError: functions that TVM does not convert, with their nodes.
    """
    importer = _Importer()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = program.run_decompositions()
        mod = importer.from_exported_program(
            program,
            keep_params_as_input=False,
            unwrap_unit_return_tuple=True,
            no_bind_return_tuple=False,
            custom_convert_map=None,
        )
    return importer.names.attach(mod)


def display_name(node: fx.Node) -> str:
    """The layer as the user knows it: the path of a `torch.nn` module, else the FX node's name."""
    stack = node.meta.get("nn_module_stack") or {}
    path, kind = next(reversed(stack.values()), ("", ""))
    kind = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
    if path and kind.startswith("torch.nn.modules."):
        return str(path)
    return str(node.name)


class _Importer(ExportedProgramImporter):
    """TVM's importer; whatever it stores for a node is recorded under the node's name."""

    def __init__(self) -> None:
        super().__init__()
        self.names = NodeNames(lambda var: self.block_builder.lookup_binding(var))
        self.env = _RecordingDict(self.names)

    def create_convert_map(self) -> dict[str, Any]:
        converters = super().create_convert_map()
        return {name: _named_failures(convert) for name, convert in converters.items()}

    def _check_unsupported_func_type(self, nodes: list[fx.Node]) -> None:
        missing: dict[str, list[str]] = defaultdict(list)
        for node in nodes:
            if node.op == "call_function" and node.target.__name__ not in self.convert_map:
                missing[node.target.__name__].append(display_name(node))
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
    def __init__(self, names: NodeNames):
        super().__init__()
        self._names = names

    def __setitem__(self, node: fx.Node, value: Any) -> None:
        super().__setitem__(node, value)
        values = value if isinstance(value, list | tuple) else [value]
        expressions = [v for v in values if isinstance(v, relax.Expr)]
        self._names.claim(expressions, display_name(node))


def _named_failures(convert: Any) -> Any:
    def guarded(node: fx.Node, *rest: Any) -> Any:
        try:
            return convert(node, *rest)
        except FrontendError:
            raise
        except Exception as error:
            raise FrontendError(
                f"Cannot convert FX node '{node.name}' ({node.target}, layer "
                f"'{display_name(node)}'): {first_line(error)}. Replace the "
                "function, or export the model to ONNX."
            ) from error

    return guarded
