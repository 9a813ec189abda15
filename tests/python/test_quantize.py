import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as S

from calibrated import quantizer_values, value_of
from numpy_network import evaluate_one
from plain_tvm import build, run, run_one
from realized import dtypes, normal
from tvm_quant import QuantizeConfig, Statistics, quantize
from tvm_quant.errors import ConfigError, DatasetError
from tvm_quant.estimator import ActivationEstimator, WeightEstimator, estimator_names
from tvm_quant.hardware import HARDWARE
from tvm_quant.ir import bindings, io_signature, op_name, with_node_names
from tvm_quant.ir.reasons import float_reasons
from tvm_quant.op import Role, role_of, scale_of, spec_of
from tvm_quant.report import layer_variables, sqnr_db
from tvm_quant.transform import Annotate, Prepare, Profile, Realize
from tvm_quant.transform.annotate import NothingQuantizedWarning
from tvm_quant.transform.calibration_samples import SAMPLES

R, NN = relax.op, relax.op.nn
DATA = normal(16, 3, 8, 8, seed=7)
X = normal(4, 3, 8, 8, seed=8)
WEIGHTS = {
    "w1": normal(8, 3, 3, 3, seed=1) / 5,
    "b1": normal(8, seed=2),
    "w2": normal(8, 8, 3, 3, seed=3) / 9,
    "w3": normal(8, 5, seed=4),
}


def network(b, x, w1, b1, w2, w3):
    """Convolution, bias, relu, max pool, residual sum, mean, dense; weights are inputs."""
    y = b.emit(NN.conv2d(x, w1, padding=1), "conv1")
    y = b.emit(NN.relu(b.emit(R.add(y, b.emit(R.reshape(b1, (1, 8, 1, 1)))), "bias1")), "relu1")
    y = b.emit(NN.max_pool2d(y, (2, 2), strides=(2, 2)), "pool")
    z = b.emit(NN.conv2d(y, w2, padding=1), "conv2")
    y = b.emit(NN.relu(b.emit(R.add(z, y), "sum")), "relu2")
    return b.emit(R.matmul(b.emit(R.mean(y, [2, 3]), "mean"), w3), "dense")


def float_network(batch=4):
    shapes = {name: weight.shape for name, weight in WEIGHTS.items()}
    return build(network, x=(batch, 3, 8, 8), **shapes)


NETWORK = float_network()
LAYERS = ["relax.nn.conv2d", "relax.nn.conv2d", "relax.matmul"]


@pytest.fixture(scope="module")
def exact():
    """What the float network computes."""
    return run_one(NETWORK, X, *WEIGHTS.values())


@pytest.fixture(scope="module")
def statistics():
    """Of the calibration data."""
    found = Statistics()
    quantize(NETWORK, WEIGHTS, DATA, statistics=found)
    return found


@pytest.fixture(scope="module")
def statistics_of_both_operands():
    """For rows whose sums take two quantized operands: more tensors are profiled."""
    found = Statistics()
    quantize(NETWORK, WEIGHTS, DATA, QuantizeConfig(hardware="npu"), statistics=found)
    return found


def simulated(statistics, **fields):
    """The module before integers; the network is not run again."""
    config = QuantizeConfig(**fields, simulate=True)
    return quantize(NETWORK, WEIGHTS, config=config, statistics=statistics)


def integer_layers(mod):
    return [
        op_name(binding.value)
        for binding in bindings(mod["main"])
        if role_of(binding.value) is Role.CONTRACTION and "int" in str(binding.var.ty.dtype)
    ]


def test_quantize_gives_an_integer_network_close_to_the_float_one(exact):
    text, weights = NETWORK.script(), {name: w.copy() for name, w in WEIGHTS.items()}
    int8 = quantize(NETWORK, WEIGHTS, DATA)
    assert integer_layers(int8) == LAYERS
    assert [info.name for info in io_signature(int8)] == ["x"]  # weights are constants
    assert sqnr_db(exact, run_one(int8, X)) > 30
    assert NETWORK.script() == text, "the caller's module changed"
    for name, weight in weights.items():
        np.testing.assert_array_equal(WEIGHTS[name], weight)


def test_every_run_gives_the_same_bits(statistics):
    again = Statistics()
    first = quantize(NETWORK, WEIGHTS, DATA, statistics=again)
    with ThreadPoolExecutor(2) as executor:
        threads = quantize(NETWORK, WEIGHTS, DATA, executor=executor)
    reused = quantize(NETWORK, WEIGHTS, DATA, statistics=statistics)
    for other in (threads, reused):
        tvm.ir.assert_structural_equal(other, first)
    assert again.samples == statistics.samples == len(DATA)


@pytest.mark.parametrize("fields", [{}, {"bias_correction": "none"}, {"nbit_weight": 4}])
def test_statistics_of_another_configuration_give_the_same_bits(fields):
    config, found = QuantizeConfig(**fields), Statistics()
    cheap = replace(config, activation_estimator="minmax", bias_correction="none", simulate=True)
    data = normal(3 * SAMPLES, 3, 8, 8, seed=7)
    quantize(NETWORK, WEIGHTS, data, replace(cheap, weight_rounding="nearest"), statistics=found)
    reused = quantize(NETWORK, WEIGHTS, data, config, statistics=found)
    assert found.samples == len(data)
    tvm.ir.assert_structural_equal(reused, quantize(NETWORK, WEIGHTS, data, config))


def test_with_statistics_a_part_of_the_data_is_run_again_where_weights_need_it(monkeypatch):
    sizes = []
    run = Profile.__init__
    monkeypatch.setattr(
        Profile,
        "__init__",
        lambda self, data, *args, **kw: sizes.append(data) or run(self, data, *args, **kw),
    )
    data, found = np.tile(DATA, (20, 1, 1, 1)), Statistics()
    for rounding in ("nearest", "nearest", "error_feedback"):
        quantize(NETWORK, WEIGHTS, data, QuantizeConfig(weight_rounding=rounding), statistics=found)
    whole, part = sizes
    assert sum(len(batch["x"]) for batch in whole) == len(data)
    assert sum(len(batch["x"]) for batch in part) == SAMPLES < len(data)


def test_weights_are_rounded_by_what_they_meet_in_the_data(statistics):
    nearest = quantize(NETWORK, WEIGHTS, DATA, QuantizeConfig(weight_rounding="nearest"))
    tvm.ir.assert_structural_equal(quantize(NETWORK, WEIGHTS, statistics=statistics), nearest)
    found = quantize(NETWORK, WEIGHTS, DATA, statistics=statistics)
    with pytest.raises(ValueError, match="StructuralEqual"):
        tvm.ir.assert_structural_equal(found, nearest)


def test_without_data_the_range_is_assumed(exact):
    config = QuantizeConfig(global_scale=6.0, simulate=True)
    mod = quantize(NETWORK, WEIGHTS, config=config)
    scale, _zero_point = scale_of(quantizer_values(mod)["x_q"])
    assert scale == np.float32(12 / 255)
    assert sqnr_db(exact, evaluate_one(mod, X)) > 20


def test_simulate_stops_before_integers(statistics):
    mod = simulated(statistics)
    assert integer_layers(mod) == []
    assert len(quantizer_values(mod)) > 5
    int8 = quantize(NETWORK, WEIGHTS, statistics=statistics)
    tvm.ir.assert_structural_equal(Realize()(mod), int8)


@pytest.mark.parametrize("name", estimator_names(ActivationEstimator))
def test_every_activation_estimator_works(name, statistics, exact):
    mod = simulated(statistics, activation_estimator=name)
    averages = name == "moving_average"  # clips what exceeds the average extreme
    assert sqnr_db(exact, evaluate_one(mod, X)) > (15 if averages else 20)


@pytest.mark.parametrize("name", estimator_names(WeightEstimator))
def test_every_weight_estimator_works(name, statistics, exact):
    mod = simulated(statistics, weight_estimator=name)
    assert sqnr_db(exact, evaluate_one(mod, X)) > 25


@pytest.mark.parametrize("correction", ["none", "fast", "full"])
@pytest.mark.parametrize("fields", [{}, {"per_channel": False, "equalize": True}])
def test_options_work_together(correction, fields, statistics, exact):
    config = QuantizeConfig(bias_correction=correction, simulate=True, **fields)
    known = None if fields else statistics
    mod = quantize(NETWORK, WEIGHTS, DATA[:8], config, statistics=known)
    assert sqnr_db(exact, evaluate_one(mod, X)) > 25


@pytest.mark.parametrize("hardware", HARDWARE)
def test_every_hardware_row_works_end_to_end(
    hardware, statistics, statistics_of_both_operands, exact
):
    row = HARDWARE[hardware]
    statistics = statistics if row.sums_on_accumulators else statistics_of_both_operands
    mod = simulated(statistics, hardware=hardware)
    int8 = Realize(row.requantize)(mod)
    config = QuantizeConfig(hardware=hardware)
    tvm.ir.assert_structural_equal(
        int8, quantize(NETWORK, WEIGHTS, config=config, statistics=statistics)
    )
    assert integer_layers(int8) == LAYERS
    result = run_one(int8, X)
    shifts = row.power_of_two_scales  # ties are frequent there, and round up instead of to even
    assert sqnr_db(evaluate_one(mod, X), result) > (30 if shifts else 35)
    assert sqnr_db(exact, result) > (20 if row.power_of_two_scales else 30)


def test_wide_activations_and_narrow_weights_with_exceptions(exact):
    config = QuantizeConfig(
        nbit_input=16,
        nbit_activation=16,
        nbit_weight=4,
        overrides={"conv1": {"nbit_weight": 8}, "out": {"nbit_activation": 8}},
        simulate=True,
    )
    mod = quantize(NETWORK, WEIGHTS, DATA, config)
    bits = {name: spec_of(call).bits for name, call in quantizer_values(mod).items()}
    assert bits["x_q"] == 16
    assert (bits["conv1_weight_q"], bits["conv2_weight_q"], bits["out_weight_q"]) == (8, 4, 4)
    assert bits["mean_q"] == 8
    result = run_one(Realize()(mod), X)
    assert sqnr_db(evaluate_one(mod, X), result) > 50
    assert sqnr_db(exact, result) > 15


def test_layers_that_are_skipped_stay_in_float(exact):
    mod = quantize(NETWORK, WEIGHTS, DATA, QuantizeConfig(skip=("conv2",), simulate=True))
    assert "left in float by skip pattern 'conv2'" in float_reasons(mod["main"])["conv2"]
    int8 = Realize()(mod)
    assert integer_layers(int8) == ["relax.nn.conv2d", "relax.matmul"]
    only = quantize(NETWORK, WEIGHTS, DATA, QuantizeConfig(only=("out",)))
    assert integer_layers(only) == ["relax.matmul"]
    assert sqnr_db(exact, evaluate_one(mod, X)) > 30


def test_names_of_layers_are_those_of_the_model(statistics):
    mod = float_network()
    names = {"conv1": "stem/Conv", "conv2": "block.conv", "sum": "block.add", "out": "head"}
    mod["main"] = with_node_names(mod["main"], names)
    prepared = Prepare(WEIGHTS)(mod)
    int8 = quantize(mod, WEIGHTS, statistics=statistics)
    for result in (prepared, int8):
        assert set(names.values()) <= set(layer_variables(result))


def test_a_module_that_is_annotated_already_keeps_its_grids(statistics):
    annotated = Annotate(QuantizeConfig(nbit_weight=4))(Prepare(WEIGHTS)(NETWORK))
    mod = quantize(annotated, config=QuantizeConfig(simulate=True), statistics=statistics)
    bits = {name: spec_of(call).bits for name, call in quantizer_values(mod).items()}
    assert bits["conv1_weight_q"] == 4
    assert bits["x_q"] == 8


def test_a_network_that_is_quantized_already_runs_as_it_is(statistics):
    int8 = quantize(NETWORK, WEIGHTS, statistics=statistics)
    with pytest.warns(NothingQuantizedWarning):
        again = quantize(int8)
    np.testing.assert_array_equal(run_one(again, X), run_one(int8, X))


def test_nothing_to_quantize_gives_a_float_network_and_a_warning():
    def body(b, x):
        return b.emit(R.sigmoid(b.emit(NN.relu(x), "relu")), "gate")

    mod = build(body, x=X.shape)
    with pytest.warns(NothingQuantizedWarning, match="stays in float: 'relu': no quantized layer"):
        result = quantize(mod, dataset=DATA)
    np.testing.assert_allclose(run_one(result, X), 1 / (1 + np.exp(-np.maximum(X, 0))), rtol=1e-5)


def test_everything_skipped_gives_a_float_network_and_a_warning(exact):
    config = QuantizeConfig(skip=("relax.nn.*", "relax.matmul"))
    with pytest.warns(NothingQuantizedWarning, match="left in float by skip pattern"):
        result = quantize(NETWORK, WEIGHTS, DATA, config)
    np.testing.assert_allclose(run_one(result, X), exact, rtol=1e-4)


def test_a_network_that_is_quantized_gives_no_warning(statistics):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quantize(NETWORK, WEIGHTS, DATA, statistics=statistics)


def test_branches_stay_in_float_and_compute_what_they_did():
    weight = relax.const(normal(4, 3, 3, 3) / 5)
    other = relax.const(normal(2, 4, 1, 1, seed=1))

    @I.ir_module
    class Module:
        @S.function
        def main(x: S.Tensor((4, 3, 8, 8), "float32"), c: S.Tensor((), "bool")):
            y = S.nn.conv2d(x, weight)
            if c:
                z = S.nn.conv2d(y, other)
            else:
                z = S.multiply(S.nn.conv2d(y, other), S.const(2.0, "float32"))
            return z

    batches = [
        {"x": part, "c": np.asarray(i % 2, bool)} for i, part in enumerate(np.split(DATA, 4))
    ]
    int8 = quantize(Module, dataset=batches)
    assert integer_layers(int8) == ["relax.nn.conv2d"]
    for flag in (True, False):
        condition = np.asarray(flag)
        assert sqnr_db(run_one(Module, X, condition), run_one(int8, X, condition)) > 30


def test_tuples_of_results_and_several_inputs():
    def body(b, x, y):
        left = b.emit(NN.conv2d(x, relax.const(normal(4, 3, 3, 3) / 5)), "left")
        right = b.emit(NN.conv2d(y, relax.const(normal(4, 2, 3, 3, seed=1) / 4)), "right")
        both = b.emit(R.add(left, right), "sum")
        return both, left, b.emit(R.mean(x, [2, 3]), "mean")

    n = tirx.Var("n", "int64")
    mod = build(body, x=(n, 3, 8, 8), y=(n, 2, 8, 8))
    other = normal(16, 2, 8, 8, seed=3)
    int8 = quantize(mod, dataset={"x": DATA, "y": other})
    for size in (1, 5):
        inputs = DATA[:size], other[:size]
        for wanted, got in zip(run(mod, *inputs), run(int8, *inputs), strict=True):
            assert got.shape == wanted.shape
            assert sqnr_db(wanted, got) > 30


def test_the_data_may_come_in_any_form(statistics):
    expected = quantize(NETWORK, WEIGHTS, DATA, statistics=statistics)
    batches = np.split(DATA, 4)
    for data in ({"x": DATA}, [{"x": batch} for batch in batches], [(batch,) for batch in batches]):
        tvm.ir.assert_structural_equal(quantize(NETWORK, WEIGHTS, data), expected)


def test_max_samples_limits_what_is_profiled():
    found = Statistics()
    quantize(NETWORK, WEIGHTS, DATA, QuantizeConfig(max_samples=8), statistics=found)
    assert found.samples == 8


def test_progress_goes_to_standard_error(statistics, capfd):
    config = QuantizeConfig(bias_correction="full", simulate=True)
    quantize(NETWORK, WEIGHTS, DATA[:4], config, progress=True)
    assert capfd.readouterr().out == ""


def test_mistakes_are_refused_before_any_work(monkeypatch):
    monkeypatch.setattr("tvm.transform.Sequential", lambda *_args: pytest.fail("began to work"))
    refused = [
        (DatasetError, "shape", {"dataset": normal(4, 5, 8, 8)}),
        (DatasetError, "NaN", {"dataset": DATA * np.nan}),
        (DatasetError, "zero in all", {"dataset": DATA * 0}),
        (ConfigError, "Unknown hardware", {"config": QuantizeConfig(hardware="abacus")}),
        (ConfigError, "no estimator|Unknown", {"config": QuantizeConfig(weight_estimator="guess")}),
        (ConfigError, "full", {"config": QuantizeConfig(bias_correction="full")}),
    ]
    for error, message, arguments in refused:
        with pytest.raises(error, match=message):
            quantize(NETWORK, WEIGHTS, **arguments)


def test_a_pattern_that_matches_nothing_is_refused():
    with pytest.raises(ConfigError, match="skip: pattern 'conv9' matches no node"):
        quantize(NETWORK, WEIGHTS, config=QuantizeConfig(skip=("conv9",)))
    with pytest.raises(ConfigError, match="overrides: pattern 'conv9' matches no"):
        quantize(NETWORK, WEIGHTS, config=QuantizeConfig(overrides={"conv9": {"nbit_weight": 4}}))


def test_statistics_of_another_network_are_refused(statistics):
    other = {**WEIGHTS, "w2": 2 * WEIGHTS["w2"]}
    with pytest.raises(Exception, match="gathered on another network"):
        quantize(NETWORK, other, statistics=statistics)


def test_plain_tvm_compiles_the_result_and_keeps_it(statistics, tmp_path):
    int8 = quantize(NETWORK, WEIGHTS, statistics=statistics)
    compiled = tvm.compile(int8, "llvm")
    compiled.export_library(str(tmp_path / "network.so"))
    loaded = tvm.runtime.load_module(str(tmp_path / "network.so"))
    machine = relax.VirtualMachine(loaded, tvm.cpu())
    np.testing.assert_array_equal(machine["main"](tvm.runtime.tensor(X)).numpy(), run_one(int8, X))
    stored = tvm.ir.load_json(tvm.ir.save_json(int8))
    tvm.ir.assert_structural_equal(stored, int8)
    assert pickle.loads(pickle.dumps(statistics)).samples == statistics.samples


def test_weights_are_stored_as_integers(statistics):
    int8 = quantize(NETWORK, WEIGHTS, statistics=statistics)
    conv = next(b.value for b in bindings(int8["main"]) if op_name(b.value) == "relax.nn.conv2d")
    assert str(conv.args[1].ty.dtype) == "int8"
    assert {"uint8", "int32"} <= set(dtypes(int8).values())
    assert value_of(simulated(statistics), "conv1_weight_q").args[0].ty.dtype == "float32"
