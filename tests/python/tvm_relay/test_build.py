"""`relay.build`, graph executors and executors: values, names, files, and what they refuse."""

import numpy as np
import pytest
import tvm

import tvm_relay as relay
from tvm_quant.errors import BackendError, UnsupportedError
from tvm_relay import graph_executor
from tvm_relay.target import as_target, options

X = np.arange(6, dtype="float32").reshape(2, 3)
W = np.full((4, 3), 0.5, "float32")


def network():
    data, weight = relay.var("x", shape=(2, 3)), relay.var("w", shape=(4, 3))
    product = relay.nn.dense(data, weight)
    return relay.Function((data, weight), relay.Tuple((product, relay.nn.relu(data - 2.0))))


@pytest.fixture(scope="module")
def library():
    return relay.build(network(), "llvm", params={"w": tvm.runtime.tensor(W), "unknown": W})


@pytest.fixture
def runner(library):
    return graph_executor.GraphModule(library["default"](tvm.cpu(0)))


def check(first, second):
    np.testing.assert_allclose(first.numpy(), X @ W.T, rtol=1e-6)
    np.testing.assert_array_equal(second.numpy(), np.maximum(X - 2, 0))


def test_inputs_stay_set_and_outputs_are_read_by_index(runner):
    runner.set_input("x", X)
    runner.set_input(w=W)  # is a constant of the library now
    runner.run()
    assert (runner.get_num_outputs(), runner.get_num_inputs()) == (2, 1)
    assert (runner.get_input_index("x"), runner.get_input_index("w")) == (0, -1)
    check(runner.get_output(0), runner.get_output(1))
    np.testing.assert_array_equal(runner.get_input("x").numpy(), X)
    runner.run(x=X * 0)
    np.testing.assert_array_equal(runner.get_output(0).numpy(), 0)
    runner.set_input(0, X)
    runner.run()
    copy = tvm.runtime.empty((2, 3), "float32")
    runner.get_output(1, copy)
    check(runner.get_output(0), copy)


def test_what_was_not_set_or_computed_is_refused(runner):
    with pytest.raises(BackendError, match="Output 0 of 0: call run first"):
        runner.get_output(0)
    with pytest.raises(BackendError, match=r"Inputs \['x'\] are not set"):
        runner.run()
    with pytest.raises(BackendError, match="No input 'y'; the network has"):
        runner.set_input("y", X)


def test_times_are_seconds_of_a_run(runner):
    runner.set_input("x", X)
    found = runner.module.time_evaluator("run", tvm.cpu(0), number=2, repeat=3)()
    assert len(found.results) == 3
    assert 0 < found.min <= found.median <= found.max < 1
    assert runner.benchmark(tvm.cpu(0), repeat=2, number=2, x=X).mean > 0


def test_a_library_unpacks_as_before_2020(library):
    graph, code, params = library
    assert params == {}
    runner = graph_executor.create(graph, code, tvm.cpu(0))
    runner.set_input("x", X)
    runner.run()
    check(runner.get_output(0), runner.get_output(1))
    with pytest.raises(UnsupportedError, match="has the function 'default', not 'main'"):
        library["main"]


def test_a_library_is_written_and_read(library, tmp_path):
    library.export_library(tmp_path / "net.so")
    runner = graph_executor.GraphModule(
        relay.load_module(tmp_path / "net.so")["default"](tvm.cpu(0))
    )
    runner.load_params(relay.save_param_dict({"x": tvm.runtime.tensor(X)}))
    runner.run()
    check(runner.get_output(0), runner.get_output(1))


@pytest.mark.parametrize("kind", ["graph", "vm"])
def test_an_executor_takes_arrays_by_position_and_name(kind):
    run = relay.create_executor(kind, network(), tvm.cpu(0), "llvm").evaluate()
    check(*run(X, w=W))


def test_an_executor_of_another_kind_is_refused():
    with pytest.raises(UnsupportedError, match="kind='interpreter'"):
        relay.create_executor("interpreter", network())


def test_targets_are_text_with_options_or_the_one_around():
    assert options("llvm -mcpu=skylake -mattr=+avx2,+fma")["mattr"] == ["+avx2", "+fma"]
    assert as_target(None) == "llvm"
    with tvm.target.Target({"kind": "llvm", "mcpu": "skylake"}) as target:
        assert as_target(None) == target
    assert as_target({tvm.cpu(0): "llvm"}) == "llvm"


def test_passes_of_relay_compose_on_relay_modules():
    module = relay.IRModule.from_expr(network())
    passes = [
        relay.transform.InferType(),
        relay.transform.SimplifyInference(),
        relay.transform.FoldConstant(),
        relay.transform.FoldScaleAxis(),
        relay.transform.CanonicalizeOps(),
        relay.transform.AlterOpLayout(),
    ]
    once = tvm.transform.Sequential(passes)(module)
    tvm.ir.assert_structural_equal(tvm.transform.Sequential(passes)(once), once)
    with pytest.raises(AttributeError, match="no pass 'Unknown'"):
        _ = relay.transform.Unknown


def test_parameter_files_hold_tensors_and_arrays():
    blob = relay.save_param_dict({"a": X, "b": tvm.runtime.tensor(W)})
    found = relay.load_param_dict(bytearray(blob))
    np.testing.assert_array_equal(found["a"].numpy(), X)
    np.testing.assert_array_equal(found["b"].numpy(), W)
