"""Walking the bindings of a function."""

from __future__ import annotations

from collections import defaultdict

import tvm
from tvm import relax


def bindings(func: relax.Function) -> list[relax.VarBinding]:
    """Top-level bindings of `func` in order; bodies of branches are not entered."""
    return [
        binding
        for block in func.body.blocks
        for binding in block.bindings
        if isinstance(binding, relax.VarBinding)
    ]


def producers(func: relax.Function) -> dict[relax.Var, relax.Expr]:
    """Value of each top-level variable."""
    return {binding.var: binding.value for binding in bindings(func)}


def consumers(func: relax.Function) -> dict[relax.Var, list[tuple[relax.Var | None, int]]]:
    """Uses of each variable as (variable bound to the using call, operand index).

    Fields of a tuple operand count as uses by the call they are passed to when the tuple is written
    in place. A use that is no operand of a top-level call (the function's result, a branch, a match
    cast) stands as (None, -1).
    """
    found: dict[relax.Var, list[tuple[relax.Var | None, int]]] = defaultdict(list)
    for block in func.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Call):
                for index, operand in enumerate(flat_operands(value)):
                    if isinstance(operand, relax.Var):
                        found[operand].append((binding.var, index))
                continue
            for var in relax.analysis.free_vars(value):
                found[var].append((None, -1))
    for var in relax.analysis.free_vars(func.body.body):
        found[var].append((None, -1))
    return found


def flat_operands(call: relax.Call) -> list[relax.Expr]:
    """Operands of a call with tuples flattened: the fields of a concat are ports of their own."""
    flat: list[relax.Expr] = []
    for operand in call.args:
        flat.extend(operand.fields if isinstance(operand, relax.Tuple) else [operand])
    return flat


def op_name(expr: relax.Expr) -> str | None:
    """Name of the operator of a call, such as "relax.nn.conv2d"; None for anything else."""
    if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
        return str(expr.op.name)
    return None


def tensor_shape(expr: relax.Expr) -> tuple[int | None, ...] | None:
    """Shape of a tensor with None for symbolic dimensions; None if not a tensor of known rank."""
    ty = expr.ty
    if not isinstance(ty, relax.TensorType):
        return None
    if not isinstance(ty.shape, relax.ShapeExpr):
        return None if ty.ndim < 0 else (None,) * int(ty.ndim)
    return tuple(int(d) if isinstance(d, tvm.tirx.IntImm) else None for d in ty.shape.values)
