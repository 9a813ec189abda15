"""`relay.transform`: the passes that a script for quantization names, as passes over Relax.

They run by hand, in a `tvm.transform.Sequential`, and under any `PassContext`. What Relay did in
five passes before quantization is one here, `tvm_quant.transform.Prepare`; it is idempotent, so a
script may name all five. What Relay did for a target is done by `relay.build`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm
from tvm import IRModule, relax

from tvm_quant.transform import Prepare

Factory = Callable[..., tvm.transform.Pass]


def _prepare(*_args: Any, **_options: Any) -> tvm.transform.Pass:
    """Inference form with constants folded: see `tvm_quant.transform.Prepare`."""
    return Prepare()


def _infer_type(*_args: Any, **_options: Any) -> tvm.transform.Pass:
    """Normal form, in which every expression has its type."""
    return relax.transform.Normalize()


def _dead_code(*_args: Any, **_options: Any) -> tvm.transform.Pass:
    """Without bindings and functions that nobody reads."""
    return relax.transform.DeadCodeElimination()


def _common(*_args: Any, **_options: Any) -> tvm.transform.Pass:
    """Equal calls of equal operands are computed once."""
    return relax.transform.EliminateCommonSubexpr()


def _convert_layout(desired_layouts: Mapping[str, Any]) -> tvm.transform.Pass:
    """Other layouts, {Relay operator: [data, kernel]}."""
    wanted = {f"relax.{name}": list(layouts) for name, layouts in desired_layouts.items()}
    return relax.transform.ConvertLayout(wanted)


def _later(*_args: Any, **_options: Any) -> tvm.transform.Pass:
    """The module as it is: `relay.build` does this for its target."""
    return _Unchanged()


@tvm.transform.module_pass(opt_level=0, name="Unchanged")
class _Unchanged:
    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        return mod


#: Relay's name: factory of the Relax pass.
PASSES: dict[str, Factory] = {
    "AlterOpLayout": _later,
    "CanonicalizeCast": _later,
    "CanonicalizeOps": _prepare,
    "CombineParallelConv2D": _later,
    "CombineParallelDense": _later,
    "ConvertLayout": _convert_layout,
    "DeadCodeElimination": _dead_code,
    "DynamicToStatic": _infer_type,
    "EliminateCommonSubexpr": _common,
    "FastMath": _later,
    "FoldConstant": _prepare,
    "FoldScaleAxis": _prepare,
    "ForwardFoldScaleAxis": _prepare,
    "BackwardFoldScaleAxis": _prepare,
    "FuseOps": _later,
    "InferType": _infer_type,
    "Inline": relax.transform.InlinePrivateFunctions,
    "Legalize": _later,
    "RemoveUnusedFunctions": _dead_code,
    "SimplifyExpr": _prepare,
    "SimplifyInference": _prepare,
    "ToANormalForm": _infer_type,
    "ToGraphNormalForm": _infer_type,
}


def __getattr__(name: str) -> Factory:
    if name not in PASSES:
        raise AttributeError(f"relay.transform has no pass '{name}'; it has {sorted(PASSES)}")
    return PASSES[name]
