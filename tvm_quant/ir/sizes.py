"""Symbolic sizes of dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax, tirx


def symbolic_sizes(var: relax.Var) -> list[tirx.Var]:
    """The sizes that a tensor defines: its dimensions of a name, not those computed from others."""
    return [size for size in _sizes(var) if isinstance(size, tirx.Var)]


def free_sizes(shape: relax.ShapeExpr) -> set[tirx.Var]:
    """The names of sizes in a shape."""
    return {var for size in shape.values for var in tirx.analysis.undefined_vars(size)}


def own_params(params: Sequence[relax.Var]) -> list[relax.Var]:
    """Parameters of the same types for another function, which knows no other sizes.

    A size that is computed from ones that no parameter has gets a name, equal ones the same.

    >>> n = tirx.Var("n", "int64")
    >>> own_params([relax.Var("x", relax.TensorType((n * 4, 3), "int8"))])[0].ty.shape
    R.shape([size, 3])
    """
    known = {size for param in params for size in symbolic_sizes(param)}
    named: list[tuple[tirx.PrimExpr, tirx.Var]] = []

    def own(size: tirx.PrimExpr) -> tirx.PrimExpr:
        if known.issuperset(tirx.analysis.undefined_vars(size)):
            return size
        for other, name in named:
            if tvm.ir.structural_equal(other, size):
                return name
        named.append((size, tirx.Var("size", "int64")))
        return named[-1][1]

    def own_type(param: relax.Var) -> relax.Type:
        sizes = [own(size) for size in _sizes(param)]
        return relax.TensorType(sizes, param.ty.dtype) if sizes else param.ty

    return [relax.Var(str(param.name), own_type(param)) for param in params]


def _sizes(var: relax.Var) -> list[tirx.PrimExpr]:
    if not isinstance(var.ty, relax.TensorType) or not isinstance(var.ty.shape, relax.ShapeExpr):
        return []
    return list(var.ty.shape.values)
