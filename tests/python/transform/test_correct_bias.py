import numpy as np
import pytest
import tvm
from tvm import IRModule, relax, tirx
from tvm.script import ir as I
from tvm.script import relax as S

from calibrated import calibrated, names, value_of
from numpy_network import all_values, evaluate
from plain_tvm import build
from realized import normal
from tvm_quant.config import QuantizeConfig
from tvm_quant.errors import CalibrationError, ConfigError
from tvm_quant.ir import io_signature, node_name, with_node_names
from tvm_quant.op import Kind, QuantSpec, simulated_quantize
from tvm_quant.report import layer_variables, sqnr_db
from tvm_quant.statistics import Statistics, TensorStatistics
from tvm_quant.transform import (
    CorrectBias,
    MatchScales,
    calibration_samples,
    layer_walk,
    measure_shift,
)
from tvm_quant.transform.measure_shift import measure_shifts
from tvm_quant.transform.quantizers import strip_quantizers

R, NN = relax.op, relax.op.nn
S8 = QuantSpec(narrow=True)
FAST = QuantizeConfig(nbit_weight=4)
FULL = QuantizeConfig(nbit_weight=4, bias_correction="full")
NONE = QuantizeConfig(nbit_weight=4, bias_correction="none")


def const(array):
    return relax.const(np.float32(array))


# Rounded to 0.5 and -1, an error of -1/8 each; with means 2 and 4 the shift is -3/4.
W = const([[[[0.625]], [[-0.875]]]])
MEANS = Statistics(
    {"x": TensorStatistics.of(np.float32([2, 4]).reshape(1, 2, 1, 1), axis=1)}, samples=1
)
THREE_QUARTERS = const(np.full((1, 1, 1, 1), 0.75))
BIAS = const(np.full((1, 1, 1, 1), 4))
CORRECTED = const(np.full((1, 1, 1, 1), 4.75))


def test_a_missing_bias_is_inserted():
    @I.ir_module
    class Before:
        @S.function
        def main(x: S.Tensor((1, 2, 4, 4), "float32")) -> S.Tensor((1, 1, 4, 4), "float32"):
            with S.dataflow():
                x_q = simulated_quantize(x, 0.1, spec=S8, kind=Kind.INPUT)
                w_q = simulated_quantize(W, 0.5, spec=S8, kind=Kind.WEIGHT)
                y = S.nn.conv2d(x_q, w_q)
                z = S.nn.relu(y)
                S.output(z)
            return z

    @I.ir_module
    class After:
        @S.function
        def main(x: S.Tensor((1, 2, 4, 4), "float32")) -> S.Tensor((1, 1, 4, 4), "float32"):
            S.func_attr({"tvm_quant.node_names": {"y_product": "y"}})
            with S.dataflow():
                x_q = simulated_quantize(x, 0.1, spec=S8, kind=Kind.INPUT)
                w_q = simulated_quantize(W, 0.5, spec=S8, kind=Kind.WEIGHT)
                y_product = S.nn.conv2d(x_q, w_q)
                y = S.add(y_product, THREE_QUARTERS)
                z = S.nn.relu(y)
                S.output(z)
            return z

    tvm.ir.assert_structural_equal(CorrectBias(statistics=MEANS)(Before), After)


def test_a_bias_is_changed_in_place():
    @I.ir_module
    class Before:
        @S.function
        def main(x: S.Tensor((1, 2, 4, 4), "float32")) -> S.Tensor((1, 1, 4, 4), "float32"):
            with S.dataflow():
                x_q = simulated_quantize(x, 0.1, spec=S8, kind=Kind.INPUT)
                w_q = simulated_quantize(W, 0.5, spec=S8, kind=Kind.WEIGHT)
                y = S.nn.conv2d(x_q, w_q)
                z = S.add(y, BIAS)
                S.output(z)
            return z

    @I.ir_module
    class After:
        @S.function
        def main(x: S.Tensor((1, 2, 4, 4), "float32")) -> S.Tensor((1, 1, 4, 4), "float32"):
            with S.dataflow():
                x_q = simulated_quantize(x, 0.1, spec=S8, kind=Kind.INPUT)
                w_q = simulated_quantize(W, 0.5, spec=S8, kind=Kind.WEIGHT)
                y = S.nn.conv2d(x_q, w_q)
                z = S.add(y, CORRECTED)
                S.output(z)
            return z

    tvm.ir.assert_structural_equal(CorrectBias(statistics=MEANS)(Before), After)


@pytest.mark.parametrize("bias", [0.0, 1e-12])
def test_no_layer_is_left_out_for_a_bias_near_zero(bias):
    def body(b, x):
        y = b.emit(NN.conv2d(*_quantized(b, x)), "y")
        return b.emit(R.add(y, const(np.full((1, 1, 1, 1), bias))), "z")

    after = CorrectBias(statistics=MEANS)(build(body, x=(1, 2, 4, 4)))
    assert value_of(after, "z").args[1].value.numpy() == np.float32(bias + 0.75)


def _quantized(b, x):
    x_q = b.emit(simulated_quantize(x, 0.1, spec=S8, kind=Kind.INPUT), "x_q")
    return x_q, b.emit(simulated_quantize(W, 0.5, spec=S8, kind=Kind.WEIGHT), "w_q")


def two_readers(b, x):
    y = b.emit(NN.conv2d(*_quantized(b, x)), "y")
    return b.emit(R.add(b.emit(R.add(y, BIAS), "z"), b.emit(NN.relu(y), "r")), "sum")


def larger_constant(b, x):
    y = b.emit(NN.conv2d(*_quantized(b, x)), "y")
    return b.emit(R.add(y, const(np.ones((3, 1, 1, 1)))), "z")


def product(b, x):
    y = b.emit(NN.conv2d(*_quantized(b, x)), "y")
    return b.emit(R.multiply(y, BIAS), "z")


def the_result(b, x):
    return b.emit(NN.conv2d(*_quantized(b, x)), "y")


@pytest.mark.parametrize("network", [two_readers, larger_constant, product, the_result])
def test_what_is_no_bias_of_this_layer_alone_stays(network):
    before = build(network, x=(1, 2, 4, 4))
    after = CorrectBias(statistics=MEANS)(before)
    assert names(after) == [
        new for old in names(before) for new in (("y_product", "y") if old == "y" else (old,))
    ]
    np.testing.assert_array_equal(value_of(after, "y").args[1].value.numpy(), [[[[0.75]]]])


@pytest.mark.parametrize(
    ("constant", "expected"),
    [
        (2.0, np.full((1, 1, 1, 1), 2.75)),
        (np.arange(16).reshape(1, 1, 4, 4), np.arange(16).reshape(1, 1, 4, 4) + 0.75),
    ],
)
def test_a_bias_of_any_shape_is_corrected(constant, expected):
    def body(b, x):
        y = b.emit(NN.conv2d(*_quantized(b, x)), "y")
        return b.emit(R.add(const(constant), y), "z")  # the constant may stand on the left

    after = CorrectBias(statistics=MEANS)(build(body, x=(1, 2, 4, 4)))
    np.testing.assert_array_equal(value_of(after, "z").args[1].value.numpy(), expected)


def test_both_calls_of_an_inserted_bias_have_the_users_name():
    mod = build(the_result, x=(1, 2, 4, 4))
    mod["main"] = with_node_names(mod["main"], {"y": "stem/Conv"})
    after = CorrectBias(statistics=MEANS)(mod)
    assert {node_name(after["main"], name) for name in ("y", "y_product")} == {"stem/Conv"}
    assert layer_variables(mod) == {"stem/Conv": "y"}
    assert layer_variables(after) == {"stem/Conv": "y"}


def test_none_and_no_means_leave_the_module_alone():
    mod = build(the_result, x=(1, 2, 4, 4))
    assert CorrectBias(NONE, MEANS)(mod).same_as(mod)
    assert CorrectBias(FAST)(mod).same_as(mod)
    tvm.ir.assert_structural_equal(CorrectBias(FAST, Statistics())(mod), mod)


def test_full_correction_without_data_is_refused():
    with pytest.raises(ConfigError, match="bias_correction='full' measures on calibration samples"):
        CorrectBias(FULL, MEANS)(build(the_result, x=(1, 2, 4, 4)))


# Full correction ---------------------------------------------------------------


class NumPyRunner:
    """Stands in for the compiled runner."""

    def __init__(self, mod):
        self.mod = mod
        self.names = [info.name for info in io_signature(mod)]

    def run(self, inputs):
        assert set(inputs) == set(self.names)
        return evaluate(self.mod, *(inputs[name] for name in self.names))


class NumPyFunctions:
    """Stands in for compiled functions."""

    def __init__(self, mod):
        self.mod = mod

    def call(self, name, *values):
        return evaluate(IRModule({"main": self.mod[name]}), *values)

    def arrays(self, value):
        return [part for field in value for part in field] if isinstance(value, tuple) else [value]


def use_numpy(monkeypatch):
    monkeypatch.setattr(measure_shift, "Runner", NumPyRunner)
    monkeypatch.setattr(layer_walk, "Functions", NumPyFunctions)


@pytest.fixture
def in_numpy(monkeypatch):
    use_numpy(monkeypatch)


def weight(*shape, seed):
    return const(normal(*shape, seed=seed) / np.sqrt(np.prod(shape[1:])))


def network(b, x):
    """Layers with and without bias, behind a max pool, in a residual sum, depthwise, transposed."""
    y = b.emit(NN.conv2d(x, weight(6, 3, 3, 3, seed=1), padding=1), "first")
    y = b.emit(R.add(y, const(normal(1, 6, 1, 1))), "bias")
    y = b.emit(NN.max_pool2d(b.emit(NN.relu(y), "relu"), (2, 2), strides=(2, 2)), "pool")
    z = b.emit(NN.conv2d(y, weight(6, 1, 3, 3, seed=2), groups=6, padding=1), "depthwise")
    z = b.emit(NN.conv2d(b.emit(R.clip(z, 0, 6), "clip"), weight(6, 6, 1, 1, seed=3)), "point")
    y = b.emit(NN.relu(b.emit(R.add(z, y), "sum")), "sum_relu")
    y = b.emit(NN.conv2d_transpose(y, weight(6, 4, 2, 2, seed=4), strides=2), "deconv")
    y = b.emit(R.mean(y, [2, 3]), "mean")
    return b.emit(R.matmul(y, weight(4, 5, seed=5)), "dense")


LAYERS = ["first", "depthwise", "point", "deconv", "dense"]


def weighed_mean(values, exact):
    """Mean per output channel; a sample counts by the inverse of its energy in `exact`."""
    energy = (exact**2).mean(axis=tuple(range(1, exact.ndim)))
    weights = 1 / np.maximum(energy, np.median(energy) / 16)
    means = values.mean(axis=tuple(range(2, values.ndim)))
    return (means * weights[:, None]).sum(axis=0) / weights.sum()


def layer_means(mod, x, exact):
    """Weighed mean of each layer, biases included, per output channel."""
    values = all_values(mod, x)
    after = {"first": "bias"}
    return {name: weighed_mean(values[after.get(name, name)], exact[name]) for name in LAYERS}


@pytest.mark.parametrize(("batch", "sizes"), [(24, [24]), (tirx.Var("n", "int64"), [5, 16, 3])])
def test_full_correction_makes_the_means_those_of_float(in_numpy, batch, sizes):
    x = normal(24, 3, 8, 8) + np.float32(0.3)
    mod, statistics = calibrated(build(network, x=(batch, 3, 8, 8)), x, config=FULL)
    mod = MatchScales(statistics, FULL)(mod)
    batches = [{"x": part} for part in np.split(x, np.cumsum(sizes)[:-1])]
    after = CorrectBias(FULL, statistics, batches)(mod)
    in_float = all_values(strip_quantizers(mod), x)
    exact, plain, full = (layer_means(m, x, in_float) for m in (strip_quantizers(mod), mod, after))
    for name in LAYERS:
        largest = np.abs(exact[name]).max()
        assert np.abs(plain[name] - exact[name]).max() > 1e-3 * largest
        np.testing.assert_allclose(full[name], exact[name], rtol=0, atol=1e-5 * largest)


def test_both_corrections_gain_and_full_gains_more(in_numpy):
    x, other = normal(64, 3, 8, 8) + np.float32(0.3), normal(64, 3, 8, 8, seed=9) + np.float32(0.3)
    mod, statistics = calibrated(build(network, x=x.shape), x, config=FAST)
    exact = evaluate(strip_quantizers(mod), other)[0]
    plain, fast, full = (
        sqnr_db(exact, evaluate(CorrectBias(config, statistics, [{"x": x}])(mod), other)[0])
        for config in (NONE, FAST, FULL)
    )
    assert plain + 1 < fast < full


def test_a_loud_sample_that_a_range_clips_does_not_spoil_the_others(in_numpy):
    """With plain means it would: its clipped values shift the mean of every channel it uses."""

    def body(b, x):
        y = b.emit(NN.relu(b.emit(NN.conv2d(x, weight(6, 3, 3, 3, seed=1)), "first")), "relu")
        return b.emit(NN.conv2d(y, weight(4, 6, 3, 3, seed=2)), "second")

    x = normal(16, 3, 8, 8) + np.float32(0.3)
    mod, _ = calibrated(build(body, x=x.shape), x, config=FULL)
    loud = x.copy()
    loud[5] *= 6  # too little for an outlier
    quiet = np.delete(np.arange(16), 5)
    exact = evaluate(strip_quantizers(mod), loud)[0][quiet]

    def gain(weighed):
        with pytest.MonkeyPatch.context() as patch:
            if not weighed:
                patch.setattr(calibration_samples, "MOST_WEIGHT", 1e-9)  # the floor is above all
            after = CorrectBias(FULL, None, [{"x": loud}])(mod)
        before, corrected = (sqnr_db(exact, evaluate(m, loud)[0][quiet]) for m in (mod, after))
        return corrected - before

    assert gain(weighed=False) < 0 < 0.5 < gain(weighed=True)


def test_full_correction_is_deterministic(in_numpy):
    x = normal(8, 3, 8, 8)
    mod, _ = calibrated(build(network, x=x.shape), x, config=FULL)
    once, again = (CorrectBias(FULL, None, iter([{"x": x}]))(mod) for _ in range(2))
    tvm.ir.assert_structural_equal(once, again)


def test_bias_samples_limits_what_is_run(in_numpy):
    x = normal(24, 3, 8, 8)
    mod, _ = calibrated(build(network, x=(8, 3, 8, 8)), x[:8], config=FULL)
    config = QuantizeConfig(bias_correction="full", bias_samples=9)

    def batches():
        yield {"x": x[:8]}
        yield {"x": x[8:16]}
        pytest.fail("read a third batch")

    after = CorrectBias(config, None, batches())(mod)
    two = CorrectBias(FULL, None, [{"x": x[:8]}, {"x": x[8:16]}])(mod)
    tvm.ir.assert_structural_equal(after, two)


def test_samples_are_evenly_spaced_where_the_length_is_known(in_numpy):
    mod, _ = calibrated(build(network, x=(4, 3, 8, 8)), normal(4, 3, 8, 8), config=FULL)
    batches = [{"x": normal(4, 3, 8, 8, seed=seed)} for seed in range(5)]
    for data, expected in ((batches, batches[::2]), (iter(batches), batches[:2])):
        found = measure_shifts(mod, data, samples=8)
        chosen = measure_shifts(mod, iter(expected), samples=8)
        for name in LAYERS:
            np.testing.assert_array_equal(found[name], chosen[name])


@pytest.mark.parametrize(
    ("bytes_held", "expected"), [(10**9, [0, 1, 2]), (2 * 408, [0, 2]), (1, [0])]
)
def test_what_stands_in_memory_is_bounded(in_numpy, monkeypatch, bytes_held, expected):
    def body(b, x):
        y = b.emit(R.matmul(x, weight(12, 4, seed=1)), "first")
        return b.emit(R.matmul(y, weight(4, 2, seed=2)), "second")

    mod, _ = calibrated(build(body, x=(8, 12)), normal(8, 12), config=FULL)
    batches = [{"x": normal(8, 12, seed=seed)} for seed in range(3)]
    # Before the first layer 8 * 12 inputs and 4 + 2 shifts in float32: 408 bytes.
    monkeypatch.setattr(measure_shift, "MEMORY_BYTES", bytes_held)
    found = measure_shifts(mod, batches, samples=24)
    few = measure_shifts(mod, [batches[index] for index in expected], samples=24)
    for name in ("first", "second"):
        np.testing.assert_array_equal(found[name], few[name])


def test_networks_of_several_inputs_and_results(in_numpy):
    def body(b, x, y):
        left = b.emit(NN.conv2d(x, weight(3, 2, 3, 3, seed=1)), "left")
        right = b.emit(NN.conv2d(y, weight(3, 2, 3, 3, seed=2)), "right")
        return left, b.emit(R.add(left, right), "sum")

    n = tirx.Var("n", "int64")
    x, y = normal(6, 2, 5, 5) + np.float32(1), normal(6, 2, 5, 5, seed=1) + np.float32(1)
    mod, _ = calibrated(build(body, x=(n, 2, 5, 5), y=(n, 2, 5, 5)), x, y, config=FULL)
    batches = [{"y": y[:2], "x": x[:2]}, {"y": y[2:], "x": x[2:]}]
    after = CorrectBias(FULL, None, batches)(mod)
    exact, full = (evaluate(m, x, y) for m in (strip_quantizers(mod), after))
    # The sum is the right layer and the corrected left one.
    layers = exact[0], exact[1] - exact[0]
    found = full[0], full[1] - full[0]
    for wanted, got in zip(layers, found, strict=True):
        np.testing.assert_allclose(
            weighed_mean(got, wanted), weighed_mean(wanted, wanted), atol=1e-5
        )


def test_inputs_without_a_common_batch_axis(in_numpy):
    """Rows of the layer are no samples: each batch is one, with the energy of all its rows."""

    def body(b, x, y):
        left = b.emit(R.matmul(x, weight(3, 4, seed=1)), "left")
        return b.emit(R.add(left, y), "sum")

    data = [normal(2, 3, seed=seed) + np.float32(1) for seed in (1, 2)]
    mod, _ = calibrated(build(body, x=(2, 3), y=(4,)), data[0], normal(4), config=FULL)
    after = CorrectBias(FULL, None, [{"x": x, "y": normal(4)} for x in data])(mod)
    exact, full = (
        np.stack([all_values(m, part, normal(4))["left"].T for part in data])
        for m in (strip_quantizers(mod), after)
    )
    np.testing.assert_allclose(weighed_mean(full, exact), weighed_mean(exact, exact), atol=1e-5)


def test_where_most_samples_are_silent_all_count_the_same(in_numpy):
    def body(b, x):
        return b.emit(R.matmul(x, weight(12, 4, seed=1)), "dense")

    x = normal(8, 12)
    mod, _ = calibrated(build(body, x=(8, 12)), x, config=FULL)
    x[1:] = 0
    shift = measure_shifts(mod, [{"x": x}], samples=8)["dense"]
    difference = evaluate(mod, x)[0] - evaluate(strip_quantizers(mod), x)[0]
    np.testing.assert_allclose(shift, difference.mean(axis=0), rtol=1e-6)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("bad", [1e6, np.nan, np.inf])
def test_samples_that_break_the_means_are_left_out(in_numpy, bad):
    x = normal(20, 3, 8, 8) + np.float32(0.3)
    mod, _ = calibrated(build(network, x=(1, 3, 8, 8)), x, config=FULL)
    broken = x.copy()
    broken[7, 1, 4, 4] = bad
    good = measure_shifts(mod, [{"x": np.delete(x, 7, axis=0)}], samples=99)
    found = measure_shifts(mod, [{"x": broken[:8]}, {"x": broken[8:]}], samples=99)
    assert list(found) == LAYERS
    for name in LAYERS:
        np.testing.assert_allclose(found[name], good[name], atol=1e-6)


def test_without_a_finite_sample_full_correction_is_refused(in_numpy):
    x = np.full((2, 3, 8, 8), np.nan, "float32")
    mod, _ = calibrated(build(network, x=x.shape), normal(2, 3, 8, 8), config=FULL)
    with pytest.raises(CalibrationError, match="Cannot correct the bias of layer 'first'"):
        CorrectBias(FULL, None, [{"x": x}])(mod)


def test_a_network_without_weighted_layers_is_left_alone(in_numpy):
    mod = build(lambda b, x: b.emit(NN.relu(x)), x=(2, 3))
    tvm.ir.assert_structural_equal(CorrectBias(FULL, None, [])(mod), mod)


def test_the_compiled_probe_measures_what_numpy_measures(monkeypatch):
    n = tirx.Var("n", "int64")
    x = normal(8, 3, 8, 8) + np.float32(0.3)

    def body(b, x):
        y = b.emit(NN.relu(b.emit(NN.conv2d(x, weight(4, 3, 1, 1, seed=1)), "first")), "relu")
        z = b.emit(NN.conv2d(y, weight(4, 4, 1, 1, seed=2)), "second")
        y = b.emit(R.add(z, y), "sum")  # held while the second layer runs
        return b.emit(R.matmul(b.emit(R.mean(y, [2, 3]), "mean"), weight(4, 5, seed=5)), "dense")

    mod, _ = calibrated(build(body, x=(n, 3, 8, 8)), x, config=FULL)
    batches = [{"x": x[:5]}, {"x": x[5:]}]
    compiled = measure_shifts(mod, batches, samples=8)
    use_numpy(monkeypatch)
    for name, expected in measure_shifts(mod, batches, samples=8).items():
        np.testing.assert_allclose(compiled[name], expected, atol=2e-3 * np.abs(expected).max())
