"""TVM's converter of TFLite operators, with names."""

from __future__ import annotations

from collections import Counter
from typing import Any

import tflite
from tvm import relax
from tvm.relax.frontend.tflite.tflite_frontend import OperatorConverter, get_tensor_name

from tvm_quant.errors import UnsupportedError
from tvm_quant.frontend.base import failures_told
from tvm_quant.frontend.node_names import NodeNames
from tvm_quant.ir.names import identifier

#: Place of the field builtin_code in the table of an operator code.
_BUILTIN_CODE = 10


class Converter(OperatorConverter):
    """TVM's converter; each operator's result becomes a variable named after its output tensor."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.names = NodeNames(self.bb.lookup_binding)
        operators = map(self.subgraph.Operators, range(self.subgraph.OperatorsLength()))
        outputs = (index for operator in operators for index in operator.OutputsAsNumpy())
        names = (get_tensor_name(self.subgraph, index) for index in outputs)
        self._first_names = Counter(name.split(";")[0] for name in names)

    def convert_op_to_relax(self) -> None:
        """Convert all operators of the subgraph."""
        for index in range(self.subgraph.OperatorsLength()):
            op = self.subgraph.Operators(index)
            outputs = self.get_output_tensors(op)
            names = [get_tensor_name(self.subgraph, output.tensor_idx) for output in outputs]
            result = self._convert(op, names)
            if result is None:  # folded into its consumers
                continue
            values = self._bind(result, names)
            for name, value in zip(names, values, strict=True):
                self.names.claim([value], self._display_name(name))
                self.exp_tab.set_expr(name, value)

    def get_op_code_str(self, op: Any) -> str:
        """Name of an operator, also where only the newer of the two fields for its code is set.

        The package tflite reads that field for large codes alone.
        """
        table = self.model.OperatorCodes(op.OpcodeIndex())._tab
        offset = table.Offset(_BUILTIN_CODE)
        if not offset:
            return str(super().get_op_code_str(op))
        place = table.Pos + offset
        code = int.from_bytes(table.Bytes[place : place + 4], "little", signed=True)
        older = self.model.OperatorCodes(op.OpcodeIndex()).DeprecatedBuiltinCode()
        if code <= older or code == tflite.BuiltinOperator.CUSTOM:
            return str(super().get_op_code_str(op))
        name = self.builtin_op_code.get(code)
        if name is None:
            raise UnsupportedError(
                f"An operator has the number {code}, which the schema of this version does not "
                "know. Update the package tflite, or convert the network for an older runtime."
            )
        return str(name)

    def _convert(self, op: Any, names: list[str]) -> relax.Expr | None:
        code = self.get_op_code_str(op)
        with failures_told(
            lambda line: (
                f"Cannot convert TFLite operator {code} that computes '{names[0]}': "
                f"{line}. Export the network with other operators, or to ONNX."
            )
        ):
            return self.convert_map[code](op=op)

    def _bind(self, result: relax.Expr, names: list[str]) -> list[relax.Expr]:
        result = self.bb.normalize(result)
        if not isinstance(result.ty, relax.TupleType):
            return [self._emit(result, names[0])]
        if isinstance(result, relax.Tuple):
            return [self._emit(v, n) for v, n in zip(result.fields, names, strict=True)]
        whole = self._emit(result, names[0])
        fields = [relax.TupleGetItem(whole, i) for i in range(len(names))]
        return [self._emit(v, n) for v, n in zip(fields, names, strict=True)]

    def _emit(self, value: relax.Expr, name: str) -> relax.Expr:
        if not isinstance(value, relax.Call | relax.TupleGetItem):
            return value
        return self.bb.emit(value, name_hint=identifier(self._display_name(name)))

    def _display_name(self, name: str) -> str:
        """The first of the names that the converter to TFLite joined by ';', if it is unique."""
        first = name.split(";")[0]
        return first if self._first_names[first] == 1 else name
