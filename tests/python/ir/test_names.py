import tvm
from tvm import relax

from plain_tvm import build
from tvm_quant.ir import bindings, node_name, with_node_names


def relu():
    return build(lambda bb, x: bb.emit(relax.op.nn.relu(x), "layer1_relu"), x=(2,))


def test_a_variable_has_its_own_name_until_a_front_end_gives_one():
    func = relu()["main"]
    var = bindings(func)[0].var
    assert node_name(func, var) == "layer1_relu"
    named = with_node_names(func, {"layer1_relu": "layer1/relu:0"})
    assert node_name(named, var) == "layer1/relu:0"
    assert node_name(named, "layer1_relu") == "layer1/relu:0"
    assert node_name(named, "other") == "other"


def test_names_survive_passes_and_storage():
    mod = relu()
    mod["main"] = with_node_names(mod["main"], {"layer1_relu": "layer1/relu:0"})
    stored = tvm.ir.load_json(tvm.ir.save_json(relax.transform.FoldConstant()(mod)))
    assert node_name(stored["main"], "layer1_relu") == "layer1/relu:0"
