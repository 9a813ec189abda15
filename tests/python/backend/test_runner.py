import os
import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from tvm import relax

import backend_networks as networks
import plain_tvm
from tvm_quant.backend import Runner, median_latency_ms
from tvm_quant.errors import BackendError

R = relax.op


@pytest.fixture(scope="module")
def runner() -> Runner:
    def body(builder, x, ids):
        pair = builder.emit(relax.Tuple([R.add(x, x), ids]))
        return relax.Tuple([pair, builder.emit(R.nn.relu(x))])

    return Runner(plain_tvm.build(body, x=(2, 3), ids=("int64", 4)))


INPUTS = {"x": np.float32([[-1, 2, 3], [4, -5, 6]]), "ids": np.arange(4)}


def test_nested_tuples_come_back_flat_depth_first(runner):
    doubled, ids, positive = runner.run(INPUTS)
    np.testing.assert_array_equal(doubled, 2 * INPUTS["x"])
    np.testing.assert_array_equal(ids, INPUTS["ids"])
    np.testing.assert_array_equal(positive, np.maximum(INPUTS["x"], 0))


def test_the_signature_names_the_inputs(runner):
    assert [(info.name, info.shape, info.dtype) for info in runner.signature] == [
        ("x", (2, 3), "float32"),
        ("ids", (4,), "int64"),
    ]


def test_a_pickled_runner_computes_the_same_bits(runner):
    copy = pickle.loads(pickle.dumps(runner))
    for ours, theirs in zip(copy.run(INPUTS), runner.run(INPUTS), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_pickling_says_nothing_and_leaves_standard_error_open(capfd):
    data = relax.Var("x", relax.TensorType((1, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [data]):
        with builder.dataflow():
            weight = relax.const(np.eye(4, dtype="float32"))
            result = builder.emit_output(relax.op.matmul(data, weight))
        builder.emit_func_output(result)
    again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(Runner(builder.get())))))
    os.write(2, b"still there")
    assert capfd.readouterr().err == "still there"
    assert again.run({"x": np.ones((1, 4), "float32")})[0].shape == (1, 4)


def test_a_runner_works_in_a_process_pool(runner):
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        result = pool.submit(runner.run, INPUTS).result()
    np.testing.assert_array_equal(result[0], 2 * INPUTS["x"])


def test_missing_and_unknown_inputs_are_named(runner):
    with pytest.raises(BackendError, match=r"missing \['ids'\], unknown \['idx'\]"):
        runner.run({"x": INPUTS["x"], "idx": INPUTS["ids"]})


def test_a_wrong_shape_is_named_with_the_expected_one(runner):
    with pytest.raises(BackendError, match=r"Input 'x' has shape \(3, 2\), expected \(2, 3\)"):
        runner.run({**INPUTS, "x": INPUTS["x"].T})


def test_a_wrong_dtype_is_named_with_the_expected_one(runner):
    with pytest.raises(BackendError, match=r"Input 'x' has dtype float64, expected float32"):
        runner.run({**INPUTS, "x": INPUTS["x"].astype("float64")})


def test_symbolic_dimensions_take_any_size():
    from tvm import tirx

    n = tirx.Var("n", "int64")
    runner = Runner(plain_tvm.build(lambda _builder, x: R.nn.relu(x), x=(n, 3)))
    for size in (1, 5):
        x = networks.normal((size, 3))
        np.testing.assert_array_equal(runner.run({"x": x})[0], np.maximum(x, 0))


def test_latencies_are_measured_in_turns(runner):
    medians = median_latency_ms({"a": runner, "b": runner}, INPUTS, rounds=3)
    assert set(medians) == {"a", "b"} and min(medians.values()) > 0


def test_threads_may_share_a_runner():
    runner = Runner(plain_tvm.build(lambda bb, x: bb.emit(R.exp(x)), x=(64, 64)))
    data = [np.full((64, 64), value, "float32") for value in np.linspace(-1, 1, 64)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda x: runner.run({"x": x})[0], data))
    np.testing.assert_array_equal(together, [runner.run({"x": x})[0] for x in data])
