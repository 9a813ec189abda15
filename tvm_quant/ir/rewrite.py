"""Running a mutator over a module."""

from __future__ import annotations

from typing import Any

from tvm import IRModule, relax


def rewrite_functions(mod: IRModule, rewriter: Any) -> IRModule:
    """The module with every Relax function as a mutator rewrites it.

    Args:
        mod: the module.
        rewriter: of class `mutator`, made from `mod`; it may add functions to its builder.
    """
    for gvar, func in mod.functions_items():
        if isinstance(func, relax.Function):
            rewriter.builder_.update_func(gvar, rewriter.visit_expr(func))
    return rewriter.builder_.get()
