"""FoldCheapConstants: compute shape changes and arithmetic on constants in NumPy.

`relax.transform.FoldConstant` compiles a kernel for each call it folds, which takes longer than
compiling the network. What this pass leaves is left to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import IRModule, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_quant.ir import constant, constant_value, op_name, rewrite_functions, tensor_shape
from tvm_quant.op import is_calibrated, simulated_quantize_numpy, spec_of

Array = npt.NDArray[Any]


@tvm.transform.module_pass(opt_level=0, name="FoldCheapConstants")
class FoldCheapConstants:
    """Replace calls of `FOLDS` whose tensor operands are all constants by their value."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """Rewrite every Relax function."""
        return relax.transform.DeadCodeElimination()(rewrite_functions(mod, _Folder(mod)))


@mutator
class _Folder(PyExprMutator):
    def __init__(self, mod: IRModule):
        super().__init__(mod)
        self.values: dict[relax.Var, relax.Expr] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value = self.builder_.normalize(self.visit_expr(binding.value))
        var = self.with_type(self.visit_var_def(binding.var), value.ty)
        self.set_var_remap(binding.var, var)
        self.builder_.emit_normalized(relax.VarBinding(var, value))
        if constant_value(value) is not None:
            self.values[var] = value

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        call = relax.Call(
            call.op, [self._value(arg) for arg in call.args], call.attrs, call.ty_args
        )
        call = self.builder_.normalize(call)
        fold = FOLDS.get(op_name(call) or "")
        shape = tensor_shape(call)
        if fold is None or shape is None or None in shape or not call.ty.dtype:
            return call
        tensors = [arg for arg in call.args if isinstance(arg.ty, relax.TensorType)]
        arrays = [array for array in map(constant_value, tensors) if array is not None]
        if len(arrays) != len(tensors):
            return call
        value = fold(call, arrays)
        if value is None:
            return call
        value = value.reshape([dim for dim in shape if dim is not None])
        return constant(np.asarray(value, str(call.ty.dtype), order="C"))

    def _value(self, expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self._value(field) for field in expr.fields])
        return self.values.get(expr, expr) if isinstance(expr, relax.Var) else expr


Fold = Callable[[relax.Call, Sequence[Array]], Array | None]


def _reorder(_call: relax.Call, arrays: Sequence[Array]) -> Array:
    return arrays[0]  # only the shape changes


def _permute(call: relax.Call, arrays: Sequence[Array]) -> Array:
    axes = call.attrs.axes
    return np.transpose(arrays[0], None if axes is None else [int(axis) for axis in axes])


def _broadcast(call: relax.Call, arrays: Sequence[Array]) -> Array:
    return np.broadcast_to(arrays[0], [int(dim) for dim in call.ty.shape.values])


def _clip(call: relax.Call, arrays: Sequence[Array]) -> Array | None:
    bounds = [getattr(bound, "value", None) for bound in call.args[1:]]
    if None in bounds or str(call.ty.dtype) != "float32":
        return None
    low, high = map(np.float32, bounds)
    return np.minimum(np.maximum(arrays[0], low), high)


def _simulated_quantize(call: relax.Call, arrays: Sequence[Array]) -> Array:
    if not is_calibrated(call):
        return arrays[0]
    data, scale, zero_point = arrays
    return simulated_quantize_numpy(data, scale, zero_point, spec_of(call))


def _ufunc(function: Callable[..., Array]) -> Fold:
    # Integer division and overflow have rules of their own: only float arithmetic is folded.
    def fold(call: relax.Call, arrays: Sequence[Array]) -> Array | None:
        return function(*arrays) if str(call.ty.dtype) == "float32" else None

    return fold


FOLDS: dict[str, Fold] = {
    **dict.fromkeys(["relax.reshape", "relax.expand_dims", "relax.squeeze"], _reorder),
    "relax.add": _ufunc(np.add),
    "relax.broadcast_to": _broadcast,
    "relax.clip": _clip,
    "relax.divide": _ufunc(np.true_divide),
    "relax.multiply": _ufunc(np.multiply),
    "relax.negative": _ufunc(np.negative),
    "relax.permute_dims": _permute,
    "relax.round": _ufunc(np.round),
    "relax.sqrt": _ufunc(np.sqrt),
    "relax.subtract": _ufunc(np.subtract),
    "tvm_quant.simulated_quantize": _simulated_quantize,
}
