import warnings

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper

from onnx_models import (
    assert_close,
    loads_like_onnxruntime,
    model,
    node,
    onnxruntime_results,
    results,
    samples,
)
from tvm_quant.errors import FrontendError
from tvm_quant.frontend import load
from tvm_quant.ir import bindings, io_signature, node_name, op_name

W = np.ones((2, 3, 1, 1), np.float32)
B = np.ones(2, np.float32)
IMAGE = {"x": ["N", 3, 4, 4]}


def named(*nodes):
    """Names of nodes by the operators computed for them."""
    source = model(nodes, IMAGE, {"w": W, "b": B})
    mod, _ = load(source)
    func = mod["main"]
    return [
        (str(op_name(b.value)).removeprefix("relax."), node_name(func, b.var))
        for b in bindings(func)
        if op_name(b.value)
    ]


def test_every_variable_carries_the_name_of_its_node():
    conv = helper.make_node("Conv", ["x", "w", "b"], ["c"], name="/layer1.0/conv")
    relu = helper.make_node("Relu", ["c"], ["y"], name="relu:0")
    assert named(conv, relu) == [
        ("nn.conv2d", "/layer1.0/conv"),
        ("add", "/layer1.0/conv"),
        ("nn.relu", "relu:0"),
    ]


def test_a_node_without_a_name_is_called_after_its_output():
    assert named(node("Relu", ["x"], "activation_3")) == [("nn.relu", "activation_3")]


def test_two_nodes_of_one_name_are_told_apart_by_their_outputs():
    first = helper.make_node("Relu", ["x"], ["a"], name="same")
    second = helper.make_node("Sigmoid", ["a"], ["y"], name="same")
    assert named(first, second) == [("nn.relu", "same"), ("sigmoid", "same:y")]


@pytest.mark.parametrize("name", ["input.1", "0", "/encoder/x:0", "two words"])
def test_inputs_keep_their_names(name):
    source = model([node("Relu", [name])], {name: [1, 2]})
    mod, _ = load(source)
    assert [info.name for info in io_signature(mod)] == [name]
    loads_like_onnxruntime(source)


def test_a_model_is_not_changed_by_loading_it():
    source = model([node("Relu", ["x"])], {"x": [None, 2]})
    before = source.SerializeToString()
    load(source)
    assert source.SerializeToString() == before


def test_loading_prints_and_warns_nothing(capfd):
    source = model([node("Relu", ["0"])], {"0": [None, 3]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(source)
    assert capfd.readouterr() == ("", "")


def test_two_nameless_dimensions_are_not_taken_for_equal():
    mod, _ = load(model([node("Relu", ["x"])], {"x": [None, 3, None]}))
    first, _, last = mod["main"].params[0].ty.shape.values
    assert not first.same_as(last)


def test_a_dimension_of_one_name_is_one_symbol_in_all_inputs():
    source = model([node("Add", ["a", "b"])], {"a": ["batch-size", 3], "b": ["batch-size", 3]})
    mod, _ = load(source)
    first, second = (param.ty.shape.values[0] for param in mod["main"].params)
    assert first.same_as(second)


def test_shapes_fix_open_dimensions_everywhere():
    source = model([node("Add", ["a", "b"])], {"a": ["N", 3], "b": ["N", 3]})
    mod, _ = load(source, shapes={"a": (4, 3)})
    assert [info.shape for info in io_signature(mod)] == [(4, 3), (4, 3)]


def test_shapes_of_an_unknown_input_are_refused_with_the_names_there_are():
    with pytest.raises(FrontendError, match=r"no input 'data'; its inputs are \['x'\]"):
        load(model([node("Relu", ["x"])], {"x": [1, 2]}), shapes={"data": (1, 2)})


def test_shapes_of_another_rank_are_refused():
    with pytest.raises(FrontendError, match=r"'x' has rank 2, but shape \(1, 2, 3\)"):
        load(model([node("Relu", ["x"])], {"x": [1, 2]}), shapes={"x": (1, 2, 3)})


def test_several_outputs_among_them_an_input_and_one_twice():
    nodes = [node("Relu", ["x"], "a"), node("Identity", ["x"], "b"), node("Identity", ["a"], "c")]
    loads_like_onnxruntime(model(nodes, IMAGE, outputs=["a", "b", "c"]))


def branching_model(threshold):
    """Conv in both branches of an If on the mean of the input."""

    def branch(kernel):
        info = helper.make_tensor_value_info(f"y_{kernel}", TensorProto.FLOAT, None)
        conv = node("Conv", ["relu", kernel], f"y_{kernel}")
        return helper.make_graph([conv], kernel, [], [info])

    nodes = [
        node("Relu", ["x"], "relu"),
        node("ReduceMean", ["relu"], "mean", keepdims=0),
        node("Greater", ["mean", "threshold"], "condition"),
        node("If", ["condition"], "y", then_branch=branch("w1"), else_branch=branch("w2")),
    ]
    weights = {"w1": W, "w2": -W, "threshold": np.float32(threshold)}
    return model(nodes, IMAGE, weights)


@pytest.mark.parametrize("threshold", [-1, 10])
def test_if_takes_the_right_branch(threshold):
    source = branching_model(threshold)
    feeds = samples(source)
    mod, _ = load(source)
    assert_close(results(mod, feeds), onnxruntime_results(source, feeds), 1e-6)


def test_nodes_of_a_branch_are_computed_inside_it():
    mod, _ = load(branching_model(0))
    outside = {op_name(binding.value) for binding in bindings(mod["main"])}
    assert "relax.nn.conv2d" not in outside


def test_local_functions_are_written_out():
    function = helper.make_function(
        "custom",
        "Twice",
        ["a"],
        ["b"],
        [helper.make_node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 17)],
    )
    source = model([helper.make_node("Twice", ["x"], ["y"], domain="custom")], IMAGE)
    source.functions.append(function)
    source.opset_import.append(helper.make_opsetid("custom", 1))
    assert loads_like_onnxruntime(source) == {"add"}


def test_weights_in_an_external_file_are_read(tmp_path):
    source = model([node("Conv", ["x", "w"])], IMAGE, {"w": W})
    expected, _ = load(source)
    path = tmp_path / "model.onnx"
    onnx.save(source, path, save_as_external_data=True, size_threshold=0, location="weights.bin")
    mod, _ = load(path)
    tvm.ir.assert_structural_equal(mod, expected)


def test_a_missing_external_file_is_named(tmp_path):
    path = tmp_path / "model.onnx"
    source = model([node("Conv", ["x", "w"])], IMAGE, {"w": W})
    onnx.save(source, path, save_as_external_data=True, size_threshold=0, location="weights.bin")
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(FrontendError, match=r"weights\.bin.*separate file"):
        load(path)


def test_external_weights_that_were_not_loaded_are_refused(tmp_path):
    path = tmp_path / "model.onnx"
    source = model([node("Conv", ["x", "w"])], IMAGE, {"w": W})
    onnx.save(source, path, save_as_external_data=True, size_threshold=0, location="weights.bin")
    with pytest.raises(FrontendError, match=r"'w' lies in an external file.*onnx\.load"):
        load(onnx.load(path, load_external_data=False))


def test_unsupported_operators_are_refused_with_node_operator_domain_and_advice():
    lstm = helper.make_node("LSTM", ["x", "w", "w"], ["y"], name="encoder/lstm", hidden_size=2)
    odd = helper.make_node("Frobnicate", ["x"], ["z"], domain="my.ops")
    with pytest.raises(FrontendError) as caught:
        load(model([lstm, odd], IMAGE, {"w": W}, outputs=["y"]))
    message = str(caught.value)
    assert "LSTM of domain 'ai.onnx': node 'encoder/lstm'" in message
    assert "Frobnicate of domain 'my.ops': node 'z'" in message
    assert "Export the network without them" in message


def test_operators_that_are_namesakes_in_another_domain_are_refused_as_such():
    conv = helper.make_node("Conv", ["x", "w"], ["y"], domain="vendor.ops", name="c")
    with pytest.raises(FrontendError, match=r"Conv of 'vendor\.ops'.*not assumed to be the same"):
        load(model([conv], IMAGE, {"w": W}))


def test_a_node_that_cannot_be_converted_is_named_with_its_inputs():
    matmul = helper.make_node("MatMul", ["x", "w"], ["y"], name="head/matmul")
    with pytest.raises(
        FrontendError, match=r"'head/matmul' \(MatMul, opset 17; inputs x: R.Tensor"
    ):
        load(model([matmul], {"x": [1, 5]}, {"w": np.ones((4, 3), np.float32)}))


def test_a_tensor_that_nothing_computes_is_named():
    with pytest.raises(FrontendError, match="Tensor 'nowhere' is used before"):
        load(model([node("Relu", ["nowhere"])], IMAGE))


def test_models_older_than_opset_7_broadcast_as_their_attributes_say():
    add = node("Add", ["x", "c"], broadcast=1, axis=1)
    source = model([add], {"x": [2, 3, 4, 5]}, {"c": np.float32([1, 2, 3])}, opset=6)
    feeds = samples(source)
    mod, _ = load(source)
    expected = feeds["x"] + np.float32([1, 2, 3]).reshape(3, 1, 1)
    np.testing.assert_array_equal(results(mod, feeds)[0], expected)
