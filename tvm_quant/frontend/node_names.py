"""Recording which node of the original model a Relax variable belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tvm import IRModule, relax

from tvm_quant.ir import with_node_names


class NodeNames:
    """Names of the variables that a front end emits while it converts one node after the other.

    A variable belongs to the node during whose conversion it first appeared.

    Args:
        lookup: value bound to a variable by the block builder, None for an input of the function.
    """

    def __init__(self, lookup: Callable[[relax.Var], relax.Expr | None]):
        self._lookup = lookup
        self._owner: dict[relax.Var, str] = {}

    def claim(self, results: Iterable[relax.Expr], node: str) -> None:
        """Give `node` every variable that `results` are computed from and nobody owns yet."""
        pending = [var for result in results for var in relax.analysis.free_vars(result)]
        while pending:
            var = pending.pop()
            if var in self._owner:
                continue
            value = self._lookup(var)
            if value is None:  # an input of the function
                continue
            self._owner[var] = node
            if not isinstance(value, relax.If):
                pending.extend(relax.analysis.free_vars(value))

    def attach(self, mod: IRModule) -> IRModule:
        """`mod` with the names recorded in the attributes of `main`."""
        names = {str(var.name): node for var, node in self._owner.items()}
        mod["main"] = with_node_names(mod["main"], names)
        return mod
