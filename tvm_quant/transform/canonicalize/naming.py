"""Variable names: unique, and after the nodes of the original model where they are known."""

from __future__ import annotations

from collections import defaultdict

from tvm import IRModule, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_quant.ir import NODE_NAMES, bindings, op_name, with_node_names
from tvm_quant.ir.names import identifier


def rename(mod: IRModule) -> IRModule:
    """Name the last variable of each node after the node, the others with their operator behind it.

    Without names of nodes the variables keep theirs, made unique.
    """
    gvar = mod.get_global_var("main")
    func = mod[gvar]
    nodes = recorded_names(func)
    renamer = _Renamer(mod, _wanted_names(func, nodes))
    func = renamer.visit_expr(func)
    names = {new: nodes[old] for old, new in renamer.renamed if old in nodes}
    renamer.builder_.update_func(gvar, with_node_names(func, names) if names else func)
    return renamer.builder_.get()


def name_aliases(mod: IRModule) -> IRModule:
    """Give a variable that only repeats another one that one's node name, if it has none."""
    gvar = mod.get_global_var("main")
    func = mod[gvar]
    names = recorded_names(func)
    for binding in bindings(func):
        value = binding.value
        if isinstance(value, relax.Var) and str(value.name) in names:
            names.setdefault(str(binding.var.name), names[str(value.name)])
    if names == recorded_names(func):
        return mod
    named = IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    named[gvar] = with_node_names(func, names)
    return named


def recorded_names(func: relax.Function) -> dict[str, str]:
    """The names of nodes by variable name."""
    names = func.attrs.get(NODE_NAMES) if func.attrs else None
    return {str(var): str(node) for var, node in (names or {}).items()}


def fresh_name(name: str, taken: set[str]) -> str:
    """`name`, or with a number behind it one that is not in `taken`, where it is added.

    >>> fresh_name("conv", {"conv", "conv_2"})
    'conv_3'
    """
    fresh, counter = name, 1
    while fresh in taken:
        counter += 1
        fresh = f"{name}_{counter}"
    taken.add(fresh)
    return fresh


def _wanted_names(func: relax.Function, nodes: dict[str, str]) -> dict[str, str]:
    by_node: dict[str, list[relax.VarBinding]] = defaultdict(list)
    for binding in bindings(func):
        if str(binding.var.name) in nodes:
            by_node[nodes[str(binding.var.name)]].append(binding)
    wanted = {}
    for node, group in by_node.items():
        for binding in group[:-1]:
            operator = (op_name(binding.value) or "item").rpartition(".")[2]
            wanted[str(binding.var.name)] = f"{identifier(node)}_{operator}"
        wanted[str(group[-1].var.name)] = identifier(node)
    return wanted


@mutator
class _Renamer(PyExprMutator):
    def __init__(self, mod: IRModule, wanted: dict[str, str]):
        super().__init__(mod)
        self.wanted = wanted
        self.taken: set[str] = set()
        self.renamed: list[tuple[str, str]] = []
        self.params: set[relax.Var] = set()

    def visit_function_(self, op: relax.Function) -> relax.Expr:
        self.params = set(op.params)
        self.taken = {str(param.name) for param in op.params}
        return super().visit_function_(op)

    def visit_var_def_(self, var: relax.Var) -> relax.Var:
        return self._renamed(var)

    def visit_dataflow_var_def_(self, var: relax.DataflowVar) -> relax.DataflowVar:
        return self._renamed(var)

    def _renamed(self, var: relax.Var) -> relax.Var:
        return var if var in self.params else type(var)(self._fresh(str(var.name)), var.ty)

    def _fresh(self, old: str) -> str:
        name = fresh_name(self.wanted.get(old, old), self.taken)
        self.renamed.append((old, name))
        return name
