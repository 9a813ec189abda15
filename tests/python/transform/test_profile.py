import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import distributed
import numpy as np
import pytest
import tvm
from numpy.testing import assert_allclose, assert_array_equal
from tvm import relax, tirx
from tvm.relax import op as R

from plain_tvm import build, run
from statistics_equal import assert_same_statistics
from tvm_quant.config import BadData
from tvm_quant.errors import CalibrationError
from tvm_quant.ir import with_node_names
from tvm_quant.op import Kind, QuantSpec, simulated_quantize
from tvm_quant.statistics import Statistics, TensorStatistics
from tvm_quant.transform import Annotate, Profile
from tvm_quant.transform.profiling import threads
from tvm_quant.transform.range_records import CalibrationWarning

RNG = np.random.default_rng(0)
KERNEL = relax.const(RNG.normal(size=(4, 3, 3, 3)).astype("float32"))
HEAD = relax.const(RNG.normal(size=(4, 5)).astype("float32"))


def small_network(batch=1):
    """conv, relu, mean, dense; annotated: quantizers read x, relu and mean."""

    def body(b, x):
        y = b.emit(R.nn.conv2d(x, KERNEL, padding=1), "conv")
        y = b.emit(R.nn.relu(y), "relu")
        y = b.emit(R.mean(y, [2, 3]), "mean")
        return b.emit(R.matmul(y, HEAD), "dense")

    mod = build(body, x=(batch, 3, 6, 6))
    mod["main"] = with_node_names(mod["main"], {"relu": "stage1/Relu"})
    return Annotate()(mod)


def batches(count, size=1, seed=1):
    data = np.random.default_rng(seed).normal(size=(count, size, 3, 6, 6)).astype("float32")
    return [{"x": batch} for batch in data]


def profiled(mod, dataset, **options):
    statistics = Statistics()
    Profile(dataset, statistics, **options)(mod)
    return statistics


def test_every_operand_of_a_quantizer_is_profiled_once_under_its_name():
    def body(b, x):
        left = b.emit(R.nn.conv2d(x, KERNEL, padding=1), "left")
        right = b.emit(R.nn.conv2d(x, KERNEL, padding=1), "right")
        return b.emit(R.add(left, right), "sum")

    mod = Annotate()(build(body, x=(1, 3, 6, 6)))
    statistics = profiled(mod, batches(3))
    assert "x" in statistics
    assert statistics.samples == 3


def test_statistics_are_those_of_the_float_tensors():
    mod, data = small_network(), batches(5)
    statistics = profiled(mod, data, chunk=2)

    def float_relu(b, x):
        return b.emit(R.nn.relu(b.emit(R.nn.conv2d(x, KERNEL, padding=1))))

    values = [run(build(float_relu, x=(1, 3, 6, 6)), batch["x"])[0] for batch in data]
    expected = TensorStatistics.of(*values, axis=1)
    assert_allclose(statistics["relu"].sample_max, expected.sample_max, rtol=1e-5)
    assert_allclose(statistics["relu"].channels.mean, expected.channels.mean, rtol=1e-4)
    assert statistics["relu"].count == expected.count
    exact = TensorStatistics.of(*[batch["x"] for batch in data], axis=1)
    assert_array_equal(statistics["x"].sample_min, exact.sample_min)
    assert_array_equal(statistics["x"].histogram.bins()[1], exact.histogram.bins()[1])


def test_profile_returns_the_module_as_it_is():
    mod = small_network()
    assert Profile(batches(1), Statistics())(mod).same_as(mod)


def test_quantizers_with_scales_do_not_disturb_the_float_values():
    spec = QuantSpec(bits=2, narrow=True)

    def body(b, x):
        x = b.emit(simulated_quantize(x, 100.0, spec=spec, kind=Kind.INPUT), "x_q")
        y = b.emit(R.nn.relu(x), "relu")
        return b.emit(simulated_quantize(y, spec=spec, kind=Kind.ACTIVATION), "relu_q")

    data = batches(2)
    statistics = profiled(build(body, x=(1, 3, 6, 6)), data)
    assert statistics["relu"].maximum == max(batch["x"].max() for batch in data)


@pytest.fixture(scope="module")
def network():
    return small_network()


@pytest.fixture(scope="module")
def alone(network):
    """Statistics gathered without an executor."""
    return profiled(network, batches(11), chunk=2)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_threads_give_the_same_bits(network, alone, workers):
    with ThreadPoolExecutor(workers) as executor:
        statistics = profiled(network, batches(11), chunk=2, executor=executor)
    assert_same_statistics(statistics, alone)


@pytest.mark.parametrize(("cores", "workers", "each"), [(1, 1, 1), (3, 3, 1), (64, 4, 16)])
def test_without_an_executor_threads_share_the_cores(
    monkeypatch, network, alone, cores, workers, each
):
    given = []
    monkeypatch.setattr(threads, "_cores", lambda: cores)
    monkeypatch.setattr(threads, "_use_cores", given.append)
    assert_same_statistics(profiled(network, batches(11), chunk=2), alone)
    assert 0 < len(given) <= workers
    assert set(given) == {each}


def test_forked_processes_give_the_same_bits(network, alone):
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as executor:
        statistics = profiled(network, batches(11), chunk=2, executor=executor)
    assert_same_statistics(statistics, alone)


def test_spawned_processes_give_the_same_bits(network, alone):
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        statistics = profiled(network, batches(11), chunk=2, executor=executor)
    assert_same_statistics(statistics, alone)


def test_dask_gives_the_same_bits(network, alone):
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        statistics = profiled(
            network, batches(11), chunk=2, executor=client.get_executor(pure=False)
        )
    assert_same_statistics(statistics, alone)


def test_shards_merge_to_the_statistics_of_all_data(network, alone):
    data = batches(11)
    shards = [profiled(network, data[:4], chunk=2), profiled(network, data[4:], chunk=2)]
    assert_same_statistics(Statistics.merged(shards), alone)


def test_statistics_travel_between_processes(alone):
    assert_same_statistics(pickle.loads(pickle.dumps(alone)), alone)


def test_a_generator_is_enough(network):
    assert profiled(network, (batch for batch in batches(3))).samples == 3


def test_a_network_without_quantizers_runs_nothing():
    def fail():
        raise AssertionError("the data is read")
        yield

    mod = build(lambda b, x: b.emit(R.nn.relu(x)), x=(1, 3, 6, 6))
    assert not profiled(mod, fail())


def test_batches_of_a_symbolic_size_count_their_samples():
    statistics = profiled(
        small_network(tirx.Var("n", "int64")), [*batches(2, size=4), *batches(1, size=3)], chunk=1
    )
    assert statistics.samples == 11
    assert len(statistics["relu"].sample_max) == 11


def test_sequences_may_differ_in_length():
    length = tirx.Var("length", "int64")

    def body(b, x):
        return b.emit(R.matmul(x, relax.const(np.ones((8, 2), "float32"))), "dense")

    mod = Annotate()(build(body, x=(1, length, 8)))
    data = [{"x": RNG.normal(size=(1, n, 8)).astype("float32")} for n in (3, 7, 5)]
    statistics = profiled(mod, data)
    assert statistics["x"].count == 15 * 8
    assert statistics["x"].channels.axis == 2
    assert_array_equal(statistics["x"].sample_max, [batch["x"].max() for batch in data])


def test_several_inputs_and_outputs():
    def body(b, x, y):
        first = b.emit(R.nn.conv2d(x, KERNEL, padding=1), "first")
        second = b.emit(R.nn.conv2d(y, KERNEL, padding=1), "second")
        return first, second

    mod = Annotate()(build(body, x=(1, 3, 6, 6), y=(1, 3, 4, 4)))
    data = [
        {"x": a["x"], "y": b["x"][:, :, :4, :4]}
        for a, b in zip(batches(2), batches(2, seed=2), strict=True)
    ]
    statistics = profiled(mod, data)
    assert set(statistics) == {"x", "y"}
    assert statistics["y"].maximum == max(batch["y"].max() for batch in data)


def test_integer_inputs_are_not_profiled():
    table = relax.const(RNG.normal(size=(10, 8)).astype("float32"))

    def body(b, ids):
        rows = b.emit(R.take(table, ids, axis=0), "rows")
        return b.emit(R.matmul(rows, relax.const(np.ones((8, 2), "float32"))), "dense")

    mod = Annotate()(build(body, ids=("int64", 1, 4)))
    assert set(profiled(mod, [{"ids": np.int64([[1, 2, 3, 9]])}])) == {"rows"}


# What may go wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "Inf"), (-np.inf, "Inf")])
def test_a_bad_value_is_reported_with_tensor_node_and_sample(network, value, word):
    data = batches(5)
    data[3]["x"][0, 1, 2, 2] = value
    expected = f"Calibration sample 3 gives {word} in tensor 'x' of node 'x', input of 'conv'"
    with pytest.raises(CalibrationError, match=expected):
        profiled(network, data, chunk=2)


def test_a_bad_value_that_the_network_makes_names_the_tensor_that_shows_it_first():
    def body(b, x):
        y = b.emit(R.sqrt(x), "root")
        return b.emit(R.nn.conv2d(y, KERNEL), "conv")

    mod = build(body, x=(1, 3, 6, 6))
    mod["main"] = with_node_names(mod["main"], {"root": "Sqrt_7", "conv": "Conv_8"})
    with pytest.raises(
        CalibrationError, match="sample 0 gives NaN in tensor 'root' of node 'Sqrt_7'"
    ):
        profiled(Annotate()(mod), batches(1))


def test_bad_batches_are_left_out_if_wished(network):
    data = batches(5)
    data[3]["x"][:] = np.nan
    with pytest.warns(
        CalibrationWarning, match=r"Left out 1 calibration batch.*sample 3 gives NaN"
    ):
        statistics = profiled(network, data, on_bad=BadData.SKIP, chunk=2)
    assert_same_statistics(statistics, profiled(network, [*data[:3], data[4]], chunk=2), sums=False)


def test_only_bad_batches_are_an_error(network):
    with pytest.raises(CalibrationError, match=r"No calibration sample is usable.*sample 0"):
        profiled(network, [{"x": np.full((1, 3, 6, 6), np.nan, "float32")}], on_bad=BadData.SKIP)


def test_no_data_is_an_error(network):
    with pytest.raises(CalibrationError, match="calibration data is empty"):
        profiled(network, [])


def test_the_error_of_a_worker_arrives_and_cancels_the_rest(network):
    data = batches(40)
    data[0]["x"][:] = np.inf
    taken = 0

    def counted():
        nonlocal taken
        for batch in data:
            taken += 1
            yield batch

    raises = pytest.raises(CalibrationError, match="sample 0 gives Inf")
    with ThreadPoolExecutor(2) as executor, raises:
        profiled(network, counted(), chunk=1, executor=executor)
    assert taken < len(data)


def test_ctrl_c_arrives_as_ctrl_c(network):
    def interrupted():
        yield from batches(2)
        raise KeyboardInterrupt

    with ThreadPoolExecutor(1) as executor:
        with pytest.raises(KeyboardInterrupt):
            profiled(network, interrupted(), chunk=1, executor=executor)
        assert executor.submit(lambda: 42).result() == 42


def test_the_progress_bar_goes_to_standard_error(network, capsys):
    profiled(network, batches(2), progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""


def test_the_fingerprint_tells_networks_apart_but_not_configurations(network, alone):
    from tvm_quant.transform.profiling import fingerprint

    assert fingerprint(network) == alone.fingerprint == fingerprint(small_network())
    bare = tvm.IRModule({"main": network["main"].without_attr("tvm_quant.float_reasons")})
    assert fingerprint(bare) == alone.fingerprint
    assert fingerprint(small_network(2)) != alone.fingerprint
