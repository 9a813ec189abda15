"""Calls become the bodies of the functions that they call."""

import tvm
from tvm import relax

from tvm_quant.ir import bindings, op_name
from tvm_quant.ir.inline import inlined

OP = relax.op


def called(attrs: dict[str, str]) -> tvm.IRModule:
    """`main` calls `outer`, which calls `inner`; `inner` has these attributes."""
    builder = relax.BlockBuilder()
    gvar = None
    for name, operator in (("inner", OP.exp), ("outer", OP.tanh), ("main", OP.negative)):
        x = relax.Var("x", relax.TensorType((2,), "float32"))
        with builder.function(name, [x], attrs=attrs if name == "inner" else None):
            value = x if gvar is None else builder.emit(relax.Call(gvar, [x]))
            builder.emit_func_output(builder.emit(operator(value)))
        gvar = builder.get().get_global_var(name)
    return builder.get()


def operators(mod: tvm.IRModule) -> list[str | None]:
    return [op_name(binding.value) for binding in bindings(mod["main"])]


def test_calls_within_calls_are_inlined_and_all_functions_stay():
    mod = called({})
    result = inlined(mod)
    assert operators(result) == ["relax.exp", "relax.tanh", "relax.negative"]
    assert {g.name_hint for g in result.get_global_vars()} == {"main", "outer", "inner"}
    tvm.ir.assert_structural_equal(result["outer"], mod["outer"])
    relax.analysis.well_formed(result)


def test_what_another_compiler_takes_stays_a_call():
    result = inlined(called({"Codegen": "other"}))
    assert operators(result) == [None, "relax.tanh", "relax.negative"]
    assert bindings(result["main"])[0].value.op.name_hint == "inner"


def test_a_module_without_calls_or_without_main_stays_as_it_is():
    mod = called({})
    assert inlined(mod, "no_such_function").same_as(mod)
    alone = tvm.IRModule({"main": mod["inner"]})
    assert inlined(alone).same_as(alone)


def test_a_function_that_calls_itself_stays_a_call():
    mod = called({})
    loop, x = mod.get_global_var("inner"), relax.Var("x", relax.TensorType((2,), "float32"))
    again = relax.Call(loop, [x], ty_args=[])
    var = relax.Var("y", relax.TensorType((2,), "float32"))
    body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(var, again)])], var)
    mod[loop] = relax.Function([x], body, var.ty).with_attr("global_symbol", "inner")
    result = inlined(mod)
    assert bindings(result["main"])[0].value.op.name_hint == "inner"
    assert operators(result)[1:] == ["relax.tanh", "relax.negative"]
