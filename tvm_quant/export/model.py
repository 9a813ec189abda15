"""`export_qdq`: the annotated, calibrated graph as an ONNX model."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import ModelProto, helper
from tvm import IRModule, relax

from tvm_quant.atomic import atomic_write
from tvm_quant.errors import ConfigError, IRContractError, UnsupportedError
from tvm_quant.export.biases import bias_codes, bias_of, biased_layers
from tvm_quant.export.graph import Graph, value_info
from tvm_quant.export.operators import OPERATORS, Written
from tvm_quant.export.quantizers import FORMATS, Format, Quantizer
from tvm_quant.ir import bindings, constant_value, node_name, op_name
from tvm_quant.ir.bindings import flat_operands
from tvm_quant.ir.signature import main_function
from tvm_quant.op import is_simulated, scale_of, spec_of
from tvm_quant.transform.realize import verify_calibrated

OPSET = 21
"""The first with 16-bit grids, and the version that ONNX Runtime 1.20 and later read."""
IR_VERSION = 10
WHOLE_BYTES = (8, 16)


def export_qdq(
    mod: IRModule, path: str | Path | None = None, *, format: str | None = None
) -> ModelProto:
    """Write a calibrated network as ONNX, to run or check it in another tool.

    Weights become integers with a `DequantizeLinear`, activations get a `QuantizeLinear` and a
    `DequantizeLinear`, biases of quantized layers are int32 at the scale of their accumulator. A
    runtime that computes these in float gives the results of the simulation; one that fuses them
    into integer kernels may differ by a step, as its arithmetic does.

    Args:
        mod: the annotated module: `quantize(..., config=QuantizeConfig(simulate=True))`, or the
            `calibrated` module of an artifact.
        path: file to write; None writes none.
        format: "qdq", or "qonnx" for `Quant` nodes, which hold grids of any width. By default
            "qdq" where all grids have 8 or 16 bits.

    Returns:
        The model.

    Raises:
        ConfigError: an unknown format.
        IRContractError: a quantizer has no scale, or there is none.
        UnsupportedError: a call that ONNX has no operator for, by the name of its node.
        ArtifactError: the file cannot be written.

    >>> simulated = quantize(mod, None, data, QuantizeConfig(simulate=True))  # doctest: +SKIP
    >>> export_qdq(simulated, "model.onnx")  # doctest: +SKIP
    """
    func = main_function(mod)
    verify_calibrated(func)
    model = _Export(func, FORMATS[_checked(format, func)]).model()
    onnx.checker.check_model(model, full_check=False)
    if path is not None:
        with atomic_write(path) as stream:
            stream.write(model.SerializeToString())
    return model


def _checked(format: str | None, func: relax.Function) -> str:
    bits = {spec_of(b.value).bits for b in bindings(func) if is_simulated(b.value)}
    if not bits:
        raise IRContractError(
            "The network has no quantizers. Quantize it with QuantizeConfig(simulate=True), which "
            "stops before integers; of an artifact, export what was kept as 'calibrated'."
        )
    if format is None:
        return "qdq" if bits <= set(WHOLE_BYTES) else "qonnx"
    if format not in FORMATS:
        raise ConfigError(f"There is no format '{format}'; choose one of {sorted(FORMATS)}.")
    return format


class _Export:
    def __init__(self, func: relax.Function, format: Format):
        self.func = func
        self.format = format
        self.graph = Graph()
        self.values = {binding.var: binding.value for binding in bindings(func)}
        self.names: dict[relax.Var, str] = {}
        self.returned: set[str] = set()
        self.biased = biased_layers(func)

    def model(self) -> ModelProto:
        """All of the function."""
        for param in self.func.params:
            self.names[param] = self.graph.unique(str(param.name))
        for var, value in self.values.items():
            self._write(var, value)
        inputs = [value_info(self.names[param], param) for param in self.func.params]
        outputs = [value_info(self._output(expr), expr) for expr in _fields(self._result())]
        graph = helper.make_graph(
            self.graph.nodes, "main", inputs, outputs, self.graph.initializers
        )
        versions = [
            helper.make_opsetid(domain, 1 if domain else OPSET)
            for domain in sorted(self.graph.domains)
        ]
        return helper.make_model(
            graph, opset_imports=versions, ir_version=IR_VERSION, producer_name="tvm_quant"
        )

    def _result(self) -> relax.Expr:
        body = self.func.body.body
        while isinstance(self.values.get(body), relax.Tuple | relax.Var):
            body = self.values[body]
        return body

    def _output(self, expr: relax.Expr) -> str:
        """The name of a result; an input, a constant or what is returned twice gets a node."""
        name = self._tensor(expr, "result")
        computed = {output for node in self.graph.nodes for output in node.output}
        if name in computed and name not in self.returned:
            self.returned.add(name)
            return name
        return self.graph.add("Identity", [name], "output")

    def _write(self, var: relax.Var, value: relax.Expr) -> None:
        if isinstance(value, relax.Tuple):
            return
        if isinstance(value, relax.Var):
            self.names[var] = self.names[value]
        elif is_simulated(value):
            self.names[var] = self._quantizer(var, value)
        elif var in self.biased:
            self.names[var] = self._layer(var, self.biased[var], value)
        elif var not in self.biased.values():
            self.names[var] = self._call(var, value, [])

    def _call(self, var: relax.Var, value: relax.Expr, more: list[str]) -> str:
        write = OPERATORS.get(str(op_name(value)))
        node = node_name(self.func, var)
        if write is None:
            raise UnsupportedError(
                f"Node '{node}' computes {op_name(value) or type(value).__name__}, for which there "
                "is no ONNX operator here. Networks that came from ONNX can go back."
            )
        operands = [arg for arg in flat_operands(value) if _is_tensor(arg)]
        inputs = [self._tensor(operand, f"{var.name}_constant") for operand in operands]
        written = Written(
            graph=self.graph,
            call=value,
            inputs=[*inputs, *more],
            output=str(var.name),
            node=node,
        )
        return write(written)

    def _layer(self, var: relax.Var, layer: relax.Var, total: relax.Call) -> str:
        """A convolution or product with its bias, under the name of the sum."""
        call, name = self.values[layer], f"{var.name}_bias"
        bias = bias_of(total)
        integer = self.format.integer_biases
        codes = bias_codes(call, self.values, bias) if integer else None
        if codes is None:
            return self._call(var, call, [self.graph.constant(bias, name)])
        parts = ("codes", codes[0]), ("scale", codes[1])
        operands = [self.graph.constant(array, f"{name}_{part}") for part, array in parts]
        bias_name = self.graph.add("DequantizeLinear", operands, name, axis=0)
        return self._call(var, call, [bias_name])

    def _tensor(self, expr: relax.Expr, name: str) -> str:
        if isinstance(expr, relax.Var):
            return self.names[expr]
        known = constant_value(expr)
        assert known is not None, "a tensor operand is a variable or a constant"
        return self.graph.constant(known, name)

    def _quantizer(self, var: relax.Var, call: relax.Call) -> str:
        scale, zero_point = scale_of(call)
        quantizer = Quantizer(
            name=str(var.name), spec=spec_of(call), scale=scale, zero_point=zero_point
        )
        known = constant_value(call.args[0])
        if known is not None:
            return self.format.constant(self.graph, known, quantizer)
        return self.format.activation(self.graph, self._tensor(call.args[0], ""), quantizer)


def _fields(expr: relax.Expr) -> list[relax.Expr]:
    if isinstance(expr, relax.Tuple):
        return [field for item in expr.fields for field in _fields(item)]
    return [expr]


def _is_tensor(expr: relax.Expr) -> bool:
    return isinstance(expr.ty, relax.TensorType)


__all__ = ["export_qdq"]
