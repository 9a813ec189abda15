"""Building a function anew, binding by binding."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import IRModule, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_quant.ir.signature import main_function
from tvm_quant.ir.sizes import own_params

Visit = Callable[[relax.BlockBuilder, relax.Var, relax.Var], relax.Var]


def rebuild(
    mod: IRModule,
    visit: Visit,
    result: Callable[[], relax.Expr],
    *,
    extra_params: Sequence[relax.Var] = (),
) -> IRModule:
    """A module whose `main` computes the same bindings with something added after each.

    Args:
        mod: the module.
        visit: called after each binding with (builder, old variable, new variable); returns the
            variable that later bindings shall read instead.
        result: called at the end; what the new function returns.
        extra_params: further parameters.
    """
    func = main_function(mod)
    builder = relax.BlockBuilder()
    substitute = Substitute({})
    with builder.function("main", [*func.params, *extra_params]):
        for block in func.body.blocks:
            for binding in block.bindings:
                new = emit_again(builder, binding, substitute)
                substitute.values[binding.var] = visit(builder, binding.var, new)
        builder.emit_func_output(builder.emit(result()))
    built = IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    built.update_func(mod.get_global_var("main"), builder.get()["main"])
    return built


def emit_again(
    builder: relax.BlockBuilder, binding: relax.VarBinding | relax.MatchCast, substitute: Substitute
) -> relax.Var:
    """Emit a binding with variables replaced; returns its new variable."""
    value = substitute.visit_expr(binding.value)
    if isinstance(binding, relax.MatchCast):
        return builder.match_cast(value, binding.ty)
    return builder.emit(value, name_hint=str(binding.var.name))


def function_of(
    name: str,
    params: Sequence[relax.Var],
    bindings: Sequence[relax.VarBinding | relax.MatchCast],
    result: relax.Expr,
) -> relax.Function:
    """A function of some bindings of another one, with variables of its own.

    Args:
        name: of the function.
        params: what it takes: variables that `bindings` and `result` read and do not define.
        bindings: what it computes, in order.
        result: what it returns.
    """
    builder = relax.BlockBuilder()
    own = own_params(params)
    substitute = Substitute(dict(zip(params, own, strict=True)))
    with builder.function(name, own):
        for binding in bindings:
            substitute.values[binding.var] = emit_again(builder, binding, substitute)
        builder.emit_func_output(builder.emit(substitute.visit_expr(result), "result"))
    # Variables and symbolic dimensions belong to one function.
    return relax.utils.copy_with_new_vars(builder.get()[name])


@mutator
class Substitute(PyExprMutator):
    """Replaces variables by expressions, `values` as they are at the time of the visit."""

    def __init__(self, values: dict[relax.Var, relax.Expr]):
        super().__init__()
        self.values = values

    def visit_var_(self, var: relax.Var) -> relax.Expr:
        """The expression for `var`, or `var`."""
        return self.values.get(var, var)

    def visit_dataflow_var_(self, var: relax.Var) -> relax.Expr:
        """The expression for `var`, or `var`."""
        return self.values.get(var, var)
