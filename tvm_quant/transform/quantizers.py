"""The quantizers of a function: finding them, filling them in, taking them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
from tvm import IRModule, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_quant.ir import bindings, constant, consumers, node_name, op_name
from tvm_quant.ir.signature import main_function
from tvm_quant.op import Kind, is_simulated, kind_of
from tvm_quant.op.simulated_quantize import calibrated

Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Quantizer:
    """A `simulated_quantize` call.

    Attributes:
        var: variable that the call is bound to.
        call: the call.
        node: the user's name of the node that computes its operand.
        readers: names of each node that reads it, as patterns match them: (node, operator).
    """

    var: relax.Var
    call: relax.Call
    node: str
    readers: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """Of its variable."""
        return str(self.var.name)

    @property
    def names(self) -> tuple[str, ...]:
        """What patterns may select it by: nodes and operators that read it."""
        return tuple(name for pair in self.readers for name in pair)

    @property
    def reader(self) -> str:
        """The nodes that read it, quoted, for messages."""
        return ", ".join(repr(node) for node, _op in self.readers) or "nothing"

    @property
    def kind(self) -> Kind:
        """The role of its operand."""
        return kind_of(self.call)

    @property
    def source(self) -> str | None:
        """Name of the variable that it reads, under which statistics are kept; None: a constant."""
        operand = self.call.args[0]
        return str(operand.name) if isinstance(operand, relax.Var) else None

    def __str__(self) -> str:
        """As messages name it: "tensor 'lv7' of node 'layer1.relu', input of 'layer1.conv2'"."""
        what = "weight" if self.source is None else f"tensor '{self.source}' of node '{self.node}'"
        return f"{what}, input of {self.reader}"


def quantizers(func: relax.Function) -> list[Quantizer]:
    """The quantizers of a function, in order."""
    uses = consumers(func)
    values = {binding.var: binding.value for binding in bindings(func)}
    found = []
    for var, value in values.items():
        if not is_simulated(value):
            continue
        readers = dict.fromkeys(user for user, _port in uses[var] if user is not None)
        operand = value.args[0]
        found.append(
            Quantizer(
                var=var,
                call=value,
                node=node_name(func, operand if isinstance(operand, relax.Var) else var),
                readers=tuple((node_name(func, u), op_name(values[u]) or "call") for u in readers),
            )
        )
    return found


def set_scales(mod: IRModule, scales: Mapping[str, tuple[Array, Array]]) -> IRModule:
    """Give the quantizers of `main` their scales.

    Args:
        scales: {variable of the quantizer: (scale, zero point)}; other quantizers stay as they are.
    """
    if not scales:
        return mod
    return _rewrite_main(mod, _Calibrator(mod, scales))


def set_constants(mod: IRModule, values: Mapping[str, Array]) -> IRModule:
    """Give quantizers of constants in `main` other constants.

    Args:
        values: {variable of the quantizer: array}; other quantizers stay as they are.
    """
    if not values:
        return mod
    return _rewrite_main(mod, _Refiller(mod, values))


def strip_quantizers(mod: IRModule) -> IRModule:
    """The float network: every quantizer in `main` replaced by its operand."""
    return _rewrite_main(mod, _Stripper(mod))


def _rewrite_main(mod: IRModule, rewriter: Any) -> IRModule:
    gvar = mod.get_global_var("main")
    rewriter.builder_.update_func(gvar, rewriter.visit_expr(main_function(mod)))
    result: IRModule = rewriter.builder_.get()
    return result


@mutator
class _Calibrator(PyExprMutator):
    def __init__(self, mod: IRModule, scales: Mapping[str, tuple[Array, Array]]):
        super().__init__(mod)
        self.scales = scales

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        scale = self.scales.get(str(binding.var.name))
        if scale is not None and is_simulated(binding.value):
            binding = relax.VarBinding(binding.var, calibrated(binding.value, *scale))
        super().visit_var_binding_(binding)


@mutator
class _Refiller(PyExprMutator):
    def __init__(self, mod: IRModule, values: Mapping[str, Array]):
        super().__init__(mod)
        self.values = values

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value = self.values.get(str(binding.var.name))
        if value is not None:
            call = binding.value
            operands = [constant(value), *call.args[1:]]
            binding = relax.VarBinding(binding.var, relax.Call(call.op, operands, call.attrs))
        super().visit_var_binding_(binding)


@mutator
class _Stripper(PyExprMutator):
    def __init__(self, mod: IRModule):
        super().__init__(mod)
        self.operands: dict[relax.Var, relax.Expr] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if is_simulated(binding.value):
            self.operands[binding.var] = self.visit_expr(binding.value.args[0])
        else:
            super().visit_var_binding_(binding)

    def visit_var_(self, var: relax.Var) -> relax.Expr:
        return self.operands[var] if var in self.operands else super().visit_var_(var)

    def visit_dataflow_var_(self, var: relax.DataflowVar) -> relax.Expr:
        return self.operands[var] if var in self.operands else super().visit_dataflow_var_(var)
