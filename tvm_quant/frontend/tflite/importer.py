"""From a TFLite flatbuffer to a Relax module, with the names of its tensors."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import tflite
import tvm
from tvm import IRModule, relax
from tvm.relax.frontend.tflite import from_tflite
from tvm.relax.frontend.tflite.tflite_frontend import OperatorConverter, get_tensor_name

from tvm_quant.errors import FrontendError, UnsupportedError
from tvm_quant.frontend.base import Request, first_line
from tvm_quant.frontend.node_names import NodeNames
from tvm_quant.ir.names import identifier


def import_model(request: Request) -> IRModule:
    """The module of the first subgraph; weights are constants.

    Raises:
        FrontendError: a damaged file, or an operator that TVM does not convert.
        UnsupportedError: a model that is quantized already.
    """
    model = _read(request.source)
    _refuse_quantized(model)
    converters: list[_Converter] = []

    def converter(*args: Any, **kwargs: Any) -> _Converter:
        converters.append(_Converter(*args, **kwargs))
        return converters[-1]

    shapes = {name: tuple(shape) for name, shape in (request.shapes or {}).items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            mod = from_tflite(model, shape_dict=shapes or None, op_converter=converter)
        except tvm.error.OpNotImplemented as error:
            raise FrontendError(
                f"The TFLite model cannot be converted: {first_line(error)}. Export the network "
                "with other operators, or export it to ONNX (tf2onnx)."
            ) from error
    main = mod["main"].without_attr("params")  # they are constants of the function as well
    mod["main"] = main
    return converters[0].names.attach(mod)


class _Converter(OperatorConverter):
    """TVM's converter; each operator's result becomes a variable named after its output tensor."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.names = NodeNames(self.bb.lookup_binding)
        operators = map(self.subgraph.Operators, range(self.subgraph.OperatorsLength()))
        outputs = (index for operator in operators for index in operator.OutputsAsNumpy())
        names = (get_tensor_name(self.subgraph, index) for index in outputs)
        self._first_names = Counter(name.split(";")[0] for name in names)

    def convert_op_to_relax(self) -> None:
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

    def _convert(self, op: Any, names: list[str]) -> relax.Expr | None:
        code = self.get_op_code_str(op)
        try:
            return self.convert_map[code](op=op)
        except Exception as error:
            raise FrontendError(
                f"Cannot convert TFLite operator {code} that computes '{names[0]}': "
                f"{first_line(error)}. Export the network with other operators, or to ONNX."
            ) from error

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


def _read(source: object) -> tflite.Model:
    data = source if isinstance(source, bytes) else Path(str(source)).read_bytes()
    if data[4:8] != b"TFL3":
        raise FrontendError(f"{source!s:.80} is no TFLite model: the identifier TFL3 is missing.")
    try:
        model = tflite.Model.GetRootAsModel(data, 0)
        if model.SubgraphsLength() < 1:
            raise ValueError("it holds no subgraph")
    except Exception as error:
        raise FrontendError(f"The TFLite model is damaged: {first_line(error)}") from error
    return model


def _refuse_quantized(model: tflite.Model) -> None:
    graph = model.Subgraphs(0)
    for index in range(graph.TensorsLength()):
        tensor = graph.Tensors(index)
        quantization = tensor.Quantization()
        floating = tensor.Type() in (tflite.TensorType.FLOAT32, tflite.TensorType.FLOAT16)
        if not floating and quantization is not None and quantization.ScaleLength() > 0:
            raise UnsupportedError(
                f"The TFLite model is quantized already (tensor '{tensor.Name().decode()}' has a "
                "scale); give the float model."
            )
