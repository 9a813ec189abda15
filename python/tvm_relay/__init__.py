"""The Relay spellings of tvm_quant, for programs written against `tvm.relay`.

    import tvm_relay as relay

    mod, params = relay.frontend.from_onnx(model)
    with relay.quantize.qconfig(calibrate_mode="kl_divergence", weight_scale="max"):
        mod = relay.quantize.quantize(mod, params, dataset)
    lib = relay.build(mod, target="llvm")

Relay expressions are plain Python objects; whatever computes works on the Relax module of them.
There is no algorithm here: operators become Relax, `quantize` calls `tvm_quant.quantize`, and
`build` calls `tvm_quant.compile`; `parse` and `astext` read and write Relay's text format.
`python -m tvm_relay script.py` runs an old script as it is. `DIFFERENCES.md` says where results
differ on purpose.
"""

from __future__ import annotations

from tvm_relay import analysis, frontend, op, quantize, testing, transform
from tvm_relay.build_module import build, build_config, create_executor, load_module
from tvm_relay.expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Tuple,
    TupleGetItem,
    TupleWrapper,
    Var,
    const,
    var,
)
from tvm_relay.module import Module
from tvm_relay.namespaces import annotation, image, nn, public, qnn
from tvm_relay.param_dict import load_param_dict, save_param_dict
from tvm_relay.structural import assert_structural_equal, structural_equal
from tvm_relay.text import (
    astext,
    fromtext,
    parse,
    parse_expr,
)
from tvm_relay.to_relax import to_relax
from tvm_relay.ty import Any, FuncType, TensorType, TupleType, TypeVar

#: Where TVM had `tvm.IRModule.from_expr`.
IRModule = Module

__all__ = [
    "Any",
    "Call",
    "Constant",
    "Expr",
    "FuncType",
    "Function",
    "GlobalVar",
    "IRModule",
    "If",
    "Let",
    "Module",
    "TensorType",
    "Tuple",
    "TupleGetItem",
    "TupleType",
    "TupleWrapper",
    "TypeVar",
    "Var",
    "analysis",
    "annotation",
    "assert_structural_equal",
    "astext",
    "build",
    "build_config",
    "const",
    "create_executor",
    "fromtext",
    "frontend",
    "image",
    "load_module",
    "load_param_dict",
    "nn",
    "op",
    "parse",
    "parse_expr",
    "qnn",
    "quantize",
    "save_param_dict",
    "structural_equal",
    "testing",
    "to_relax",
    "transform",
    "var",
]


def __getattr__(name: str) -> object:
    return public(name)
