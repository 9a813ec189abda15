import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as S

from calibrated import calibrated, names, quantizer_values, value_of
from numpy_network import all_values, evaluate_one
from plain_tvm import build, run_one
from realized import normal
from tvm_quant import quantize
from tvm_quant.backend import Runner
from tvm_quant.config import QuantizeConfig
from tvm_quant.ir import node_name, with_node_names
from tvm_quant.op import (
    Kind,
    QuantSpec,
    scale_of,
    simulated_quantize,
    simulated_quantize_numpy,
    spec_of,
)
from tvm_quant.report import sqnr_db
from tvm_quant.statistics import Statistics, TensorStatistics
from tvm_quant.transform import MatchScales, Realize
from tvm_quant.transform.quantizers import strip_quantizers

R, NN = relax.op, relax.op.nn
CHANNELS = 8
SPREAD = np.float32(2.0 ** -np.arange(CHANNELS))  # ranges of the channels between the layers
X = normal(4, 3, 8, 8, seed=3)

U8 = QuantSpec(signed=False, symmetric=False)
ROWS = QuantSpec(narrow=True, axis=0)


def const(array):
    return relax.const(np.float32(array))


def spread(shape, axis, *, inverse=False, seed=0):
    """Random weights times the spread, or over it, along the axis of the channels between."""
    along = [1] * len(shape)
    along[axis] = -1
    factors = 1 / SPREAD if inverse else SPREAD
    return const(normal(*shape, seed=seed) * factors.reshape(along))


def first(b, x, name="first"):
    """A convolution whose channels have ranges from 1 to 2**-7 of the largest."""
    y = b.emit(NN.conv2d(x, spread((CHANNELS, 3, 3, 3), 0), padding=1), name)
    return b.emit(NN.relu(y), f"{name}_relu")


def conv(b, x):
    return NN.conv2d(first(b, x), spread((4, CHANNELS, 3, 3), 1, inverse=True, seed=1))


def depthwise(b, x):
    weight = spread((CHANNELS, 1, 3, 3), 0, inverse=True, seed=1)
    return NN.conv2d(first(b, x), weight, groups=CHANNELS)


def grouped(b, x):
    weight = normal(4, CHANNELS // 2, 3, 3, seed=1).reshape(2, 2, CHANNELS // 2, 3, 3)
    weight = weight / SPREAD.reshape(2, 1, CHANNELS // 2, 1, 1)
    return NN.conv2d(first(b, x), const(weight.reshape(4, CHANNELS // 2, 3, 3)), groups=2)


def transposed(b, x):
    weight = spread((CHANNELS, 4, 2, 2), 0, inverse=True, seed=1)
    return NN.conv2d_transpose(first(b, x), weight, strides=2)


def grouped_transposed(b, x):
    weight = spread((CHANNELS, 2, 2, 2), 0, inverse=True, seed=1)
    return NN.conv2d_transpose(first(b, x), weight, strides=2, groups=2)


def channels_last(b, x):
    x = b.emit(R.permute_dims(x, [0, 2, 3, 1]))
    layout = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    y = b.emit(NN.conv2d(x, spread((3, 3, 3, CHANNELS), 3), **layout), "first")
    return NN.conv2d(y, spread((3, 3, CHANNELS, 4), 2, inverse=True, seed=1), **layout)


def matmul(b, x):
    y = b.emit(R.reshape(x, (48, 16)), "flat")
    y = b.emit(R.matmul(y, spread((16, CHANNELS), 1)), "first")
    return R.matmul(y, spread((CHANNELS, 5), 0, inverse=True, seed=1))


def through_max_pool(b, x):
    y = b.emit(NN.max_pool2d(first(b, x), (2, 2), strides=(2, 2)), "pool")
    return NN.conv2d(y, spread((4, CHANNELS, 3, 3), 1, inverse=True, seed=1))


def two_convolutions(b, x):
    y = first(b, x)
    left = b.emit(NN.conv2d(y, spread((4, CHANNELS, 3, 3), 1, inverse=True, seed=1)), "left")
    right = b.emit(NN.conv2d(y, spread((4, CHANNELS, 3, 3), 1, inverse=True, seed=2)), "right")
    return R.add(left, right)


def with_a_sum(b, x):
    y = first(b, x)
    z = spread((CHANNELS, CHANNELS, 3, 3), 1, inverse=True, seed=1)
    z = b.emit(NN.conv2d(y, z, padding=1), "second")
    z = b.emit(R.add(z, y), "sum")
    return NN.conv2d(z, const(normal(4, CHANNELS, 1, 1, seed=2)))


def with_a_mean(b, x):
    y = first(b, x)
    left = b.emit(NN.conv2d(y, spread((4, CHANNELS, 3, 3), 1, inverse=True, seed=1)), "left")
    right = b.emit(R.mean(y, [2, 3], keepdims=True), "mean")
    right = b.emit(NN.conv2d(right, spread((4, CHANNELS, 1, 1), 1, inverse=True, seed=2)), "right")
    return R.add(left, right)


def with_a_mean_that_drops_axes(b, x):
    y = first(b, x)
    left = b.emit(NN.conv2d(y, spread((4, CHANNELS, 3, 3), 1, inverse=True, seed=1)), "left")
    right = b.emit(R.mean(y, [2, 3]), "mean")
    right = b.emit(R.matmul(right, spread((CHANNELS, 4), 0, inverse=True, seed=2)), "right")
    return R.add(left, b.emit(R.reshape(right, (4, 4, 1, 1)), "wide"))


def unequal_branches(b, x):
    big = b.emit(NN.conv2d(x, const(100 * normal(4, 3, 3, 3)), padding=1), "big")
    small = b.emit(NN.conv2d(x, const(normal(4, 3, 3, 3, seed=1)), padding=1), "small")
    both = b.emit(R.concat([big, small], axis=1), "both")
    weight = normal(4, 8, 1, 1, seed=2) * np.repeat([0.01, 1], 4).reshape(1, -1, 1, 1)
    return NN.conv2d(both, const(weight))


def after_a_bias(b, x):
    y = b.emit(NN.conv2d(x, spread((CHANNELS, 3, 3, 3), 0), padding=1), "first")
    y = b.emit(R.add(y, const(SPREAD.reshape(1, -1, 1, 1))), "biased")
    y = b.emit(R.clip(y, 0, 6), "clipped")
    return NN.conv2d(y, spread((4, CHANNELS, 3, 3), 1, inverse=True, seed=1))


PAYS = [
    conv,
    depthwise,
    grouped,
    transposed,
    grouped_transposed,
    channels_last,
    matmul,
    through_max_pool,
    two_convolutions,
    with_a_sum,
    with_a_mean,
    with_a_mean_that_drops_axes,
    unequal_branches,
    after_a_bias,
]


def body(network):
    return lambda b, x: b.emit(network(b, x), "last")


def before_and_after(network, config=None, x=X):
    mod, statistics = calibrated(build(body(network), x=x.shape), x, config=config)
    return mod, MatchScales(statistics, config)(mod)


@pytest.mark.parametrize("network", PAYS)
def test_the_float_function_stays_and_the_error_falls(network):
    before, after = before_and_after(network)
    exact = evaluate_one(strip_quantizers(before), X)
    same = evaluate_one(strip_quantizers(after), X)
    np.testing.assert_allclose(same, exact, rtol=0, atol=1e-5 * np.abs(exact).max())
    gain = sqnr_db(exact, evaluate_one(after, X)) - sqnr_db(exact, evaluate_one(before, X))
    assert gain > 3, f"{gain:.1f} dB"


def test_match_scales_multiplies_channels_and_divides_weights():
    weight = relax.const(np.float32([[[[8.0]], [[1.0]]]]))
    scale = np.float32(1 / 8).reshape(1, 1, 1, 1)
    divided = relax.const(np.float32([[[[1.0]], [[1.0]]]]))
    divided_scale = np.float32(1 / 64).reshape(1, 1, 1, 1)
    factors = relax.const(np.float32([8, 1]).reshape(1, 2, 1, 1))
    stretch = relax.const(np.float32([0.125, 1]).reshape(2, 1, 1, 1))
    stretch_scale = np.float32([1 / 512, 1 / 64]).reshape(2, 1, 1, 1)
    channels = np.stack([np.linspace(0, 1, 64), np.linspace(0, 8, 64)])[None, :, :, None]
    statistics = Statistics({"y": TensorStatistics.of(np.float32(channels), axis=1)}, samples=1)
    grid = np.float32(1 / 16), np.int32(0)

    @I.ir_module
    class Before:
        @S.function
        def main(x: S.Tensor((1, 1, 8, 8), "float32")) -> S.Tensor((1, 1, 8, 8), "float32"):
            with S.dataflow():
                x_q = simulated_quantize(x, 0.1, 0, spec=U8, kind=Kind.INPUT)
                first_q = simulated_quantize(stretch, stretch_scale, spec=ROWS, kind=Kind.WEIGHT)
                y = S.nn.conv2d(x_q, first_q)
                y_q = simulated_quantize(y, *grid, spec=U8, kind=Kind.ACTIVATION)
                w_q = simulated_quantize(weight, scale, spec=ROWS, kind=Kind.WEIGHT)
                z = S.nn.conv2d(y_q, w_q)
                S.output(z)
            return z

    @I.ir_module
    class After:
        @S.function
        def main(x: S.Tensor((1, 1, 8, 8), "float32")) -> S.Tensor((1, 1, 8, 8), "float32"):
            S.func_attr({"tvm_quant.node_names": {"y_matched": "y"}})
            with S.dataflow():
                x_q = simulated_quantize(x, 0.1, 0, spec=U8, kind=Kind.INPUT)
                first_q = simulated_quantize(stretch, stretch_scale, spec=ROWS, kind=Kind.WEIGHT)
                y = S.nn.conv2d(x_q, first_q)
                y_matched = S.multiply(y, factors)
                y_q = simulated_quantize(y_matched, *grid, spec=U8, kind=Kind.ACTIVATION)
                w_q = simulated_quantize(divided, divided_scale, spec=ROWS, kind=Kind.WEIGHT)
                z = S.nn.conv2d(y_q, w_q)
                S.output(z)
            return z

    config = QuantizeConfig(power_of_two_scales=True)  # so that the factors are whole numbers
    tvm.ir.assert_structural_equal(MatchScales(statistics, config)(Before), After)


@pytest.mark.parametrize(
    ("estimator", "clips"), [("robust", True), ("mse", True), ("norm", True), ("minmax", False)]
)
def test_the_estimator_ends_the_range_where_a_loud_sample_would_stretch_it(estimator, clips):
    loudness = np.ones((16, 1, 1, 1), np.float32)
    loudness[3] = 16
    x = normal(16, 3, 8, 8, seed=3) * loudness
    _before, after = before_and_after(conv, QuantizeConfig(activation_estimator=estimator), x)
    call = value_of(after, "first_relu_q")
    matched = all_values(strip_quantizers(after), x)["first_relu_matched"].max()
    share = 255 * float(scale_of(call)[0]) / matched
    assert (share < 0.99) == clips, share


def test_the_branches_of_a_concat_keep_one_grid():
    _before, after = before_and_after(unequal_branches)
    quantizers = quantizer_values(after)
    big, small = (scale_of(quantizers[name]) for name in ("big_q", "small_q"))
    assert big == small
    factors = [
        value_of(after, f"{name}_matched").args[1].value.numpy() for name in ("big", "small")
    ]
    assert factors[1].min() > 16 * factors[0].max()


def test_readers_without_weights_get_the_factors_undone():
    for network, undone in ((with_a_sum, "first_relu_q_restored"), (with_a_mean, "mean")):
        _before, after = before_and_after(network)
        factors = value_of(after, "first_relu_matched").args[1].value.numpy()
        inverse = value_of(after, undone).args[1].value.numpy()
        np.testing.assert_allclose(factors * inverse.reshape(factors.shape), 1, rtol=1e-6)


def test_made_variables_have_the_names_that_the_user_gave():
    mod, statistics = calibrated(build(body(with_a_mean), x=X.shape), X)
    mod["main"] = with_node_names(mod["main"], {"first_relu": "stem/Relu", "mean": "GAP"})
    after = MatchScales(statistics)(mod)["main"]
    assert node_name(after, "first_relu_matched") == "stem/Relu"
    assert node_name(after, "mean_matched") == node_name(after, "mean") == "GAP"
    assert node_name(after, "left") == "left"


@pytest.mark.parametrize("hardware", ["vta", "x86_vnni"])
def test_factors_are_powers_of_two_where_scales_have_to_be(hardware):
    config = QuantizeConfig(hardware=hardware)
    _before, after = before_and_after(conv, config)
    factors = value_of(after, "first_relu_matched").args[1].value.numpy()
    whole = np.log2(factors) == np.round(np.log2(factors))
    scales = [scale_of(call)[0] for call in quantizer_values(after).values()]
    powers = all((np.frexp(scale)[0] == 0.5).all() for scale in scales)
    assert (whole.all(), powers) == ((True, True) if hardware == "vta" else (False, False))


def test_changed_weights_are_calibrated_by_the_estimator_of_their_layer():
    layer = {"last": {"weight_estimator": "mse"}}
    config = QuantizeConfig(overrides=layer, nbit_weight=4)
    _before, after = before_and_after(conv, config)
    weight = quantizer_values(after)["last_weight_q"]
    values = weight.args[0].value.numpy()
    largest = np.abs(values).max(axis=(1, 2, 3), keepdims=True) / spec_of(weight).qmax
    assert (scale_of(weight)[0] < 0.99 * largest).any()  # mse clips 4-bit weights


def _table(b, x):
    y = b.emit(R.sigmoid(b.emit(NN.conv2d(x, spread((CHANNELS, 3, 3, 3), 0)), "first")), "table")
    return NN.conv2d(y, spread((4, CHANNELS, 3, 3), 1, inverse=True))


def _graph_input(b, x):
    return NN.conv2d(x, const(normal(4, 3, 3, 3) * np.float32([1, 8, 64]).reshape(1, 3, 1, 1)))


def _shared_weight(b, x):
    weight = spread((CHANNELS, CHANNELS, 3, 3), 1, inverse=True, seed=1)
    y = b.emit(NN.conv2d(first(b, x), weight, padding=1), "second")
    return NN.conv2d(y, weight)


def _read_by_a_table(b, x):
    y = first(b, x)
    left = b.emit(NN.conv2d(y, spread((4, CHANNELS, 3, 3), 1, inverse=True)), "left")
    gate = b.emit(R.sigmoid(y), "gate")
    return R.add(left, b.emit(NN.conv2d(gate, const(normal(4, CHANNELS, 3, 3))), "right"))


def _channels_are_averaged(b, x):
    y = first(b, x)
    left = b.emit(NN.conv2d(y, spread((4, CHANNELS, 3, 3), 1, inverse=True), padding=1), "left")
    mean = b.emit(R.mean(y, [1], keepdims=True), "mean")
    return R.add(left, b.emit(NN.conv2d(mean, const(normal(4, 1, 1, 1))), "right"))


def _reshaped(b, x):
    y = b.emit(R.reshape(first(b, x), (4, CHANNELS * 64)), "flat")
    return R.matmul(y, const(normal(CHANNELS * 64, 4)))


def _equal_ranges(b, x):
    y = b.emit(NN.conv2d(x, const(normal(CHANNELS, 3, 3, 3))), "first")
    return NN.conv2d(y, const(normal(4, CHANNELS, 3, 3)))


def _one_channel(b, x):
    y = b.emit(NN.conv2d(x, const(normal(1, 3, 3, 3))), "first")
    return NN.conv2d(y, const(normal(4, 1, 3, 3)))


def _product_of_activations(b, x):
    flat = b.emit(R.reshape(x, (4, 3 * 8 * 8)), "flat")
    left = b.emit(R.matmul(flat, spread((3 * 8 * 8, CHANNELS), 1)), "left")
    right = b.emit(R.matmul(flat, spread((3 * 8 * 8, CHANNELS), 1, seed=1)), "right")
    return R.matmul(left, b.emit(R.permute_dims(right, [1, 0]), "columns"))


def _concat_of_one_tensor_twice(b, x):
    y = first(b, x)
    both = b.emit(R.concat([y, y], axis=1), "both")
    return NN.conv2d(both, const(normal(4, 2 * CHANNELS, 1, 1)))


@pytest.mark.parametrize(
    "network",
    [
        _table,
        _graph_input,
        _read_by_a_table,
        _channels_are_averaged,
        _reshaped,
        _equal_ranges,
        _one_channel,
        _product_of_activations,
        _concat_of_one_tensor_twice,
    ],
)
def test_tensors_that_cannot_or_need_not_be_scaled_stay(network):
    before, after = before_and_after(network)
    tvm.ir.assert_structural_equal(after, before)


def test_a_weight_that_several_layers_share_stays():
    _before, after = before_and_after(_shared_weight)
    assert not [name for name in names(after) if name.endswith("_matched")]


def test_a_tensor_that_a_float_layer_or_the_result_reads_as_well_still_folds():
    """They read the tensor itself, before the factors."""

    def network(b, x):
        y = first(b, x)
        left = b.emit(NN.conv2d(y, spread((4, CHANNELS, 3, 3), 1, inverse=True, seed=1)), "left")
        right = b.emit(NN.conv2d(y, const(normal(4, CHANNELS, 3, 3, seed=2))), "right")
        return R.add(left, right)

    before, after = before_and_after(network, QuantizeConfig(skip=("right",)))
    assert "first_relu_matched" in names(after)
    exact = evaluate_one(strip_quantizers(before), X)
    same = evaluate_one(strip_quantizers(after), X)
    np.testing.assert_allclose(same, exact, rtol=0, atol=1e-5 * np.abs(exact).max())


def test_a_tensor_that_a_float_layer_computes_folds_too():
    before, after = before_and_after(conv, QuantizeConfig(skip=("first",)))
    assert "first_relu_matched" in names(after)
    exact = evaluate_one(strip_quantizers(before), X)
    same = evaluate_one(strip_quantizers(after), X)
    np.testing.assert_allclose(same, exact, rtol=0, atol=1e-5 * np.abs(exact).max())


def test_match_channel_scales_switches_the_pass_off():
    before, after = before_and_after(conv, QuantizeConfig(match_channel_scales=False))
    assert after.same_as(before)


def test_without_statistics_of_channels_tensors_stay():
    mod, statistics = calibrated(build(body(conv), x=X.shape), X)
    bare = {
        name: TensorStatistics(
            histogram=known.histogram, sample_min=known.sample_min, sample_max=known.sample_max
        )
        for name, known in statistics.items()
    }
    for few in (Statistics(bare, samples=4), Statistics()):
        tvm.ir.assert_structural_equal(MatchScales(few)(mod), mod)


def test_running_the_pass_twice_changes_nothing_more():
    mod, statistics = calibrated(build(body(conv), x=X.shape), X)
    once = MatchScales(statistics)(mod)
    tvm.ir.assert_structural_equal(MatchScales(statistics)(once), once)


def test_a_dead_channel_keeps_its_scale():
    def network(b, x):
        weight = normal(CHANNELS, 3, 3, 3) * SPREAD.reshape(-1, 1, 1, 1)
        weight[3] = 0
        y = b.emit(NN.conv2d(x, const(weight)), "first")
        return NN.conv2d(y, spread((4, CHANNELS, 3, 3), 1, inverse=True, seed=1))

    _before, after = before_and_after(network)
    factors = value_of(after, "first_matched").args[1].value.numpy().reshape(-1)
    assert factors[3] == 1
    assert np.isfinite(evaluate_one(after, X)).all()


def test_integers_still_equal_the_simulation():
    def network(b, x):
        y = first(b, x)
        mean = b.emit(R.mean(y, [2, 3], keepdims=True), "mean")
        z = spread((CHANNELS, CHANNELS, 3, 3), 1, inverse=True, seed=1)
        z = b.emit(NN.conv2d(y, z, padding=1), "second")
        z = b.emit(R.add(z, y), "sum")
        both = b.emit(R.concat([z, b.emit(R.multiply(y, mean), "gated")], axis=1), "both")
        return NN.conv2d(both, const(normal(4, 2 * CHANNELS, 1, 1, seed=2)))

    _before, after = before_and_after(network)
    assert {"first_relu_matched", "mean_matched", "first_relu_q_restored"} <= set(names(after))
    step = scale_of(quantizer_values(after)["sum_q"])[0]
    weight = quantizer_values(after)["last_weight_q"].args[0].value.numpy()
    one_step = step * np.abs(weight).max()
    error = np.abs(run_one(Realize()(after), X) - evaluate_one(after, X))
    assert error.max() < 1.01 * one_step
    assert (error > 0.01 * one_step).mean() < 0.02


def test_the_rounded_weight_is_that_of_the_divided_one():
    before, after = before_and_after(conv)
    factors = value_of(after, "first_relu_matched").args[1].value.numpy()
    old, new = (quantizer_values(mod)["last_weight_q"] for mod in (before, after))
    divided = old.args[0].value.numpy() / factors
    np.testing.assert_allclose(new.args[0].value.numpy(), divided, rtol=1e-6)
    rounded = simulated_quantize_numpy(divided, *scale_of(new), spec_of(new))
    np.testing.assert_allclose(rounded, divided, atol=0.51 * scale_of(new)[0].max())


# Float operands ----------------------------------------------------------------------------------


def perceptron(outlier):
    """Layer norm, two dense layers: three channels of the norm are `outlier` times as large."""

    def body(bb, x):
        draw = np.random.default_rng(0)
        gamma = np.ones(32, "float32")
        gamma[[3, 17, 30]] = outlier
        first = draw.normal(size=(32, 64)) / np.sqrt(32)
        first[[3, 17, 30]] /= outlier
        second = draw.normal(size=(64, 32)) / 8
        norm = bb.emit(NN.layer_norm(x, const(gamma), const(0 * gamma), axes=[-1]), "norm")
        hidden = bb.emit(NN.relu(bb.emit(R.matmul(norm, const(first)), "first")), "relu")
        return bb.emit(R.matmul(hidden, const(second)), "second")

    return build(body, x=(1, 8, 32))


@pytest.mark.parametrize("outlier", [1, 30, 1000])
def test_channels_of_a_float_tensor_share_a_grid(outlier):
    """The outlier channels of transformers cost nothing."""
    data = np.random.default_rng(1).normal(size=(16, 1, 8, 32)).astype("float32")
    mod = perceptron(outlier)
    runners = [Runner(found) for found in (mod, quantize(mod, dataset=list(data)))]
    exact, close = (np.stack([runner.run({"x": x})[0] for x in data]) for runner in runners)
    assert sqnr_db(exact, close) > 32


def test_a_depthwise_branch_has_scales_per_channel_at_a_fork():
    """Of the two readers of one quantizer, neither loses the codes of quiet channels."""

    def body(bb, x):
        y = first(bb, x)
        wide = bb.emit(NN.conv2d(y, spread((4, CHANNELS, 1, 1), 1, inverse=True, seed=1)), "wide")
        deep = spread((CHANNELS, 1, 3, 3), 0, inverse=True, seed=2)
        return wide, bb.emit(NN.conv2d(y, deep, groups=CHANNELS), "deep")

    mod = build(body, x=(1, 3, 8, 8))
    data = [normal(1, 3, 8, 8, seed=seed) for seed in range(16)]
    noise = {}
    for matched in (True, False):
        config = QuantizeConfig(match_channel_scales=matched)
        runners = [Runner(found) for found in (mod, quantize(mod, dataset=data, config=config))]
        outputs = [[runner.run({"x": x}) for x in data] for runner in runners]
        noise[matched] = [
            sqnr_db(np.stack(exact), np.stack(close))
            for exact, close in zip(*(zip(*side, strict=True) for side in outputs), strict=True)
        ]
    assert min(noise[True]) > 33
    assert max(noise[False]) < 25
