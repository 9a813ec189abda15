from tvm import IRModule, relax

from plain_tvm import build
from prepared import nn
from tvm_quant.ir import bindings, node_name, with_node_names
from tvm_quant.transform.canonicalize.naming import fresh_name, name_aliases, rename


def chain(names: dict[str, str]) -> IRModule:
    """Relu, tanh, sigmoid bound to a, b, c, with names of nodes."""

    def body(bb, x):
        a = bb.emit(nn.relu(x), "a")
        return bb.emit(relax.op.sigmoid(bb.emit(relax.op.tanh(a), "b")), "c")

    mod = relax.transform.CanonicalizeBindings()(build(body, x=(2,)))
    mod["main"] = with_node_names(mod["main"], names) if names else mod["main"]
    return mod


def variables(mod):
    func = mod["main"]
    return [(str(b.var.name), node_name(func, b.var)) for b in bindings(func)]


def test_the_last_variable_of_a_node_has_its_name_and_the_others_their_operator():
    mod = chain({"a": "block/act:0", "b": "block/act:0", "out": "7"})
    assert variables(rename(mod)) == [
        ("block_act_0_relu", "block/act:0"),
        ("block_act_0", "block/act:0"),
        ("n7", "7"),
    ]


def test_without_names_of_nodes_variables_keep_theirs():
    mod = chain({})
    assert variables(rename(mod)) == [("a", "a"), ("b", "b"), ("out", "out")]


def test_a_node_that_is_called_like_an_input_gets_another_variable():
    assert variables(rename(chain({"a": "x"})))[0] == ("x_2", "x")


def test_two_variables_of_one_name_are_told_apart():
    a, b = (relax.DataflowVar("same", relax.TensorType((2,), "float32")) for _ in range(2))
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    block = relax.DataflowBlock(
        [relax.VarBinding(a, nn.relu(x)), relax.VarBinding(b, relax.op.tanh(a))]
    )
    out = relax.Var("out", relax.TensorType((2,), "float32"))
    tail = relax.BindingBlock([relax.VarBinding(out, x)])
    func = relax.Function([x], relax.SeqExpr([block, tail], out), x.ty)
    mod = rename(IRModule({"main": func}))
    assert [name for name, _ in variables(mod)] == ["same", "same_2", "out"]


def test_renaming_twice_changes_nothing():
    mod = rename(chain({"a": "block/act", "b": "block/act", "out": "7"}))
    assert variables(rename(mod)) == variables(mod)


def test_a_variable_that_repeats_another_one_belongs_to_its_node():
    mod = build(lambda bb, x: bb.emit(nn.relu(x), "a"), x=(2,))
    mod["main"] = with_node_names(mod["main"], {"a": "act"})
    assert variables(name_aliases(mod)) == [("a", "act"), ("out", "act")]


def test_a_fresh_name_is_remembered():
    taken = {"conv"}
    assert [fresh_name("conv", taken) for _ in range(2)] == ["conv_2", "conv_3"]
