"""The rewrites that `Prepare` applies, one family a file, and the order in which they are tried."""

from __future__ import annotations

from tvm_quant.transform.canonicalize import (
    activations,
    bias,
    clamps,
    constants,
    elementwise,
    fold_input,
    fold_scale,
    indexing,
    inference,
    kernels,
    no_ops,
    padding,
)
from tvm_quant.transform.canonicalize.rewriter import Rule, applicable, clean, rewrite_function

RULES: tuple[Rule, ...] = (
    *kernels.RULES,
    *inference.RULES,
    *constants.RULES,
    *indexing.RULES,
    *no_ops.RULES,
    *clamps.RULES,
    *activations.RULES,
    *elementwise.RULES,
    *padding.RULES,
    *fold_scale.RULES,
    *fold_input.RULES,
    *bias.RULES,
)

__all__ = ["RULES", "Rule", "applicable", "clean", "rewrite_function"]
