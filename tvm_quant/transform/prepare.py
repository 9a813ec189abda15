"""Prepare: bring a float network into the one form that the other passes know.

Before    c = R.nn.conv2d(x, w); b = R.nn.batch_norm(c, ...)[0]; y = R.minimum(R.maximum(b, 0), 6)
After     c = R.nn.conv2d(x, w * s); b = R.add(c, t); y = R.clip(b, 0, 6)

The network computes the same up to rounding. Of `main` alone, with what it calls; bodies of `If`
stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm import IRModule, relax

from tvm_quant.errors import FrontendError, IRContractError
from tvm_quant.ir import bindings, node_name, op_name, tensor_shape
from tvm_quant.ir.inline import inlined
from tvm_quant.ir.signature import main_function
from tvm_quant.transform.canonicalize import RULES, applicable, clean, rewrite_function
from tvm_quant.transform.canonicalize.naming import name_aliases, rename
from tvm_quant.transform.canonicalize.sharing import share_constants


@tvm.transform.module_pass(opt_level=0, name="Prepare")
class Prepare:
    """Inference form with constants folded.

    After this pass, in `main` (checked by `verify_prepared`):

    - parameters are constants; calls of constants are folded; equal constants are one object;
    - no dropout, no batch norm with constant parameters, no split, no call that changes nothing;
      a concatenation reads tensors, not a tuple;
    - no generated kernel (`call_tir`) where Relax has the operator;
    - a clamp is `nn.relu` or `clip` with numbers;
    - `x - c` is `x + (-c)`, `x / c` is `x * (1/c)`, the constant stands on the right; one of a
      single value has rank 0, any other the rank of `x` (vectors along the last axis may stay);
    - scales and shifts around a convolution or matrix product with constant weights are folded into
      weights and bias where nothing else reads the tensor between; the bias is `add(result, b)`
      with b of shape (1, C, 1, 1), for NHWC (1, 1, 1, C), for matmul (C,);
    - zero padding is an attribute of the convolution;
    - names of variables are unique; those of nodes are carried along.

    Idempotent. The module that is passed in is not changed.

    Args:
        params: values for parameters of `main`, {name: array}; what is not named stays an input.

    Raises:
        FrontendError: a parameter that `main` does not have, or of another shape.
    """

    def __init__(self, params: Mapping[str, Any] | None = None):
        self.params = dict(params or {})

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """Bind, bring to normal form, rewrite until nothing changes, name."""
        mod = _normal_form(inlined(_bind(mod, self.params)))
        mod = rewrite_function(mod, RULES)
        return share_constants(rename(mod))


def verify_prepared(mod: IRModule) -> None:
    """Check the contract of `Prepare`.

    Raises:
        IRContractError: a call that `Prepare` would still change, or a name used twice.
    """
    func = main_function(mod)
    calls = {str(b.var.name): op_name(b.value) for b in bindings(func)}
    if len(calls) != len(bindings(func)):
        raise IRContractError("Two variables of main have one name; run Prepare first.")
    for var, rewrite in applicable(mod, RULES):
        raise IRContractError(
            f"{calls.get(var) or 'the value'} ({var} in @main, node '{node_name(func, var)}') is "
            f"not in the form that Prepare leaves: '{rewrite}' still applies. Run "
            "tvm_quant.transform.Prepare first."
        )


def _normal_form(mod: IRModule) -> IRModule:
    """One function, in dataflow blocks as far as it is pure, with unique names."""
    passes = [
        relax.transform.InlinePrivateFunctions(),
        relax.transform.Normalize(),
        relax.transform.ConvertToDataflow(min_size=1),
    ]
    return rename(clean(tvm.transform.Sequential(passes)(name_aliases(mod))))


def _bind(mod: IRModule, params: Mapping[str, Any]) -> IRModule:
    func = main_function(mod)
    shapes = {str(param.name): tensor_shape(param) for param in func.params}
    arrays = {name: _as_numpy(value) for name, value in params.items()}
    for name, array in arrays.items():
        if name not in shapes:
            raise FrontendError(
                f"Parameter '{name}' is no input of main; its inputs are {sorted(shapes)}."
            )
        if shapes[name] != array.shape:
            raise FrontendError(
                f"Parameter '{name}' has shape {array.shape}; main expects {shapes[name]}."
            )
    return relax.transform.BindParams("main", arrays)(mod) if arrays else mod


def _as_numpy(value: Any) -> np.ndarray[Any, Any]:
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)
