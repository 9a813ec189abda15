"""PlanMemory: share storage between tensors that are not alive at the same time.

TVM's planner gives storage that one branch of an `If` allocates to tensors after the `If`; where
the other branch was taken, the virtual machine then reads a null pointer. In a module with a branch
each tensor gets a storage of its own.
"""

from __future__ import annotations

import tvm
from tvm import IRModule, relax


@tvm.transform.module_pass(opt_level=0, name="PlanMemory")
class PlanMemory:
    """Share storage between tensors, in modules without branches."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        """Run TVM's planner where it is safe."""
        functions = [func for _, func in mod.functions_items() if isinstance(func, relax.Function)]
        if any(_branches(func) for func in functions):
            return mod
        return relax.transform.StaticPlanBlockMemory()(mod)


def _branches(func: relax.Function) -> bool:
    found: list[relax.Expr] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.If):
            found.append(expr)

    relax.analysis.post_order_visit(func, visit)
    return bool(found)
