import numpy as np
import pytest
from tvm import relax, tirx

from calibrated import calibrated, quantizer_values, value_of
from numpy_network import all_values, evaluate_one
from plain_tvm import build
from realized import normal
from tvm_quant.config import QuantizeConfig
from tvm_quant.op import (
    Kind,
    contraction_axes,
    kind_of,
    scale_of,
    simulated_quantize_numpy,
    spec_of,
)
from tvm_quant.statistics import Statistics, TensorStatistics
from tvm_quant.transform import MatchScales
from tvm_quant.transform.predict_shift import predict_shifts
from tvm_quant.transform.quantizers import strip_quantizers

R, NN = relax.op, relax.op.nn
FOUR_BITS = QuantizeConfig(nbit_weight=4)


def const(*shape, seed=1):
    return relax.const(normal(*shape, seed=seed))


def flat_data(shape, axis=1):
    """Data without noise: each channel has one value, so that its mean says everything."""
    along = [1] * len(shape)
    along[axis] = -1
    values = np.linspace(-1, 2, shape[axis], dtype="float32")
    return np.broadcast_to(values.reshape(along), shape).copy()


CASES = {
    "conv": (lambda x: NN.conv2d(x, const(5, 4, 3, 3)), (2, 4, 6, 6)),
    "padded conv": (
        lambda x: NN.conv2d(x, const(5, 4, 3, 3), padding=[1, 0, 1, 2], strides=2),
        (2, 4, 7, 6),
    ),
    "depthwise": (lambda x: NN.conv2d(x, const(4, 1, 3, 3), groups=4, padding=1), (2, 4, 6, 6)),
    "multiplied depthwise": (lambda x: NN.conv2d(x, const(8, 1, 3, 3), groups=4), (2, 4, 6, 6)),
    "grouped": (lambda x: NN.conv2d(x, const(6, 2, 3, 3), groups=2), (2, 4, 6, 6)),
    "transposed": (lambda x: NN.conv2d_transpose(x, const(4, 5, 2, 2), strides=2), (2, 4, 3, 3)),
    "cut transposed": (
        lambda x: NN.conv2d_transpose(x, const(4, 5, 3, 3), strides=2, padding=1),
        (2, 4, 3, 4),
    ),
    "grouped transposed": (
        lambda x: NN.conv2d_transpose(x, const(4, 3, 2, 3), strides=2, groups=2),
        (2, 4, 3, 3),
    ),
    "conv1d": (lambda x: NN.conv1d(x, const(5, 4, 3), padding=1), (2, 4, 9)),
    "conv1d_transpose": (lambda x: NN.conv1d_transpose(x, const(4, 5, 3), strides=2), (2, 4, 9)),
    "conv3d": (lambda x: NN.conv3d(x, const(5, 4, 2, 2, 2), padding=1), (2, 4, 3, 3, 3)),
    "channels last": (
        lambda x: NN.conv2d(
            x, const(3, 3, 4, 5), data_layout="NHWC", kernel_layout="HWIO", padding=1
        ),
        (2, 6, 6, 4),
    ),
    "matmul": (lambda x: R.matmul(x, const(4, 5)), (3, 4)),
    "matmul of three axes": (lambda x: R.matmul(x, const(4, 5)), (2, 3, 4)),
    "matmul of batches": (lambda x: R.matmul(x, const(2, 4, 5)), (2, 3, 4)),
}


@pytest.mark.parametrize(("layer", "shape"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("per_channel", [True, False])
def test_the_shift_is_what_rounded_weights_cause(layer, shape, per_channel):
    config = QuantizeConfig(nbit_weight=4, per_channel=per_channel)
    mod = build(lambda b, x: b.emit(layer(x), "last"), x=shape)
    axis = contraction_axes(value_of(mod, "last")).data
    x = flat_data(shape, axis)
    quantized, statistics = calibrated(mod, x, config=config)
    (shift,) = predict_shifts(quantized, statistics).values()
    weight = value_of(mod, "last").args[1].value.numpy()
    call = next(c for c in quantizer_values(quantized).values() if kind_of(c) is Kind.WEIGHT)
    rounded = simulated_quantize_numpy(weight, *scale_of(call), spec_of(call))
    with_rounded = build(lambda b, x: b.emit(_with_weight(layer(x), rounded), "last"), x=shape)
    error = evaluate_one(with_rounded, x) - evaluate_one(mod, x)
    output = contraction_axes(value_of(mod, "last")).output
    measured = np.moveaxis(error, output, -1).reshape(-1, error.shape[output]).mean(axis=0)
    assert np.abs(measured).max() > 1e-3
    np.testing.assert_allclose(shift, measured, rtol=1e-4, atol=1e-6)


def _with_weight(call, weight):
    return relax.Call(call.op, [call.args[0], relax.const(weight)], call.attrs)


def measured_shift(mod, x, name):
    """Mean shift of a layer whose data and the layers before it stay in float."""
    values = all_values(strip_quantizers(mod), x)
    call = value_of(mod, name)
    weight = quantizer_values(mod)[call.args[1].name]
    rounded = simulated_quantize_numpy(
        weight.args[0].value.numpy(), *scale_of(weight), spec_of(weight)
    )
    data = values[_float_name(mod, call.args[0].name)]
    again = build(lambda b, x: b.emit(_with_weight_of(call, x, rounded)), x=data.shape)
    error = evaluate_one(again, data) - values[name]
    return error.mean(axis=tuple(a for a in range(error.ndim) if a != 1))


def _with_weight_of(call, data, weight):
    return relax.Call(call.op, [data, relax.const(weight)], call.attrs)


def _float_name(mod, name):
    quantizer = quantizer_values(mod).get(name)
    return name if quantizer is None else quantizer.args[0].name


def after_max_pool(b, x):
    y = b.emit(NN.relu(b.emit(NN.conv2d(x, const(6, 4, 1, 1)), "first")), "relu")
    y = b.emit(NN.max_pool2d(y, (2, 2), strides=(2, 2)), "pool")
    return b.emit(NN.conv2d(y, const(3, 6, 1, 1, seed=2)), "last")


def after_concat(b, x):
    left = b.emit(NN.relu(b.emit(NN.conv2d(x, const(3, 4, 1, 1)), "left")), "left_relu")
    right = b.emit(NN.conv2d(x, relax.const(50 * normal(2, 4, 1, 1, seed=3))), "right")
    y = b.emit(R.concat([left, right], axis=1), "both")
    y = b.emit(NN.max_pool2d(y, (2, 2)), "pool")
    weight = normal(3, 5, 1, 1, seed=2) * np.float32([1, 1, 1, 0.02, 0.02]).reshape(1, -1, 1, 1)
    return b.emit(NN.conv2d(y, relax.const(weight)), "last")


def after_unequal_channels(b, x):
    weight = normal(6, 4, 1, 1) * np.float32(2.0 ** -np.arange(6)).reshape(-1, 1, 1, 1)
    y = b.emit(NN.relu(b.emit(NN.conv2d(x, relax.const(weight)), "first")), "relu")
    y = b.emit(NN.max_pool2d(y, (2, 2)), "pool")
    weight = normal(3, 6, 1, 1, seed=2) * np.float32(2.0 ** np.arange(6)).reshape(1, -1, 1, 1)
    return b.emit(NN.conv2d(y, relax.const(weight)), "last")


def after_flattening(b, x):
    y = b.emit(NN.relu(b.emit(NN.conv2d(x, const(2, 4, 1, 1)), "first")), "relu")
    y = b.emit(R.reshape(y, (8, 2 * 36)), "flat")
    return b.emit(R.matmul(y, const(72, 3, seed=2)), "last")


@pytest.mark.parametrize(
    "network", [after_max_pool, after_concat, after_unequal_channels, after_flattening]
)
@pytest.mark.parametrize("matched", [False, True])
def test_layers_behind_calls_that_move_codes_have_a_shift(network, matched):
    x = normal(8, 4, 6, 6) + np.float32(0.5)
    mod, statistics = calibrated(build(network, x=x.shape), x, config=FOUR_BITS)
    if matched:
        mod = MatchScales(statistics, FOUR_BITS)(mod)
    shifts = predict_shifts(mod, statistics)
    expected = measured_shift(mod, x, "last")
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(shifts["last"], expected, rtol=1e-3, atol=1e-5)


def test_the_factors_of_matched_scales_count():
    """Otherwise the test above proves nothing about them."""
    for network in (after_concat, after_unequal_channels):
        x = normal(8, 4, 6, 6)
        mod, statistics = calibrated(build(network, x=x.shape), x, config=FOUR_BITS)
        assert "_matched" in MatchScales(statistics, FOUR_BITS)(mod).script(show_meta=False)


def test_a_symbolic_batch_makes_no_difference():
    x = normal(8, 4, 6, 6)
    shifts = []
    for batch in (8, tirx.Var("n", "int64")):
        mod = build(after_max_pool, x=(batch, 4, 6, 6))
        shifts.append(predict_shifts(*calibrated(mod, x, config=FOUR_BITS))["last"])
    np.testing.assert_array_equal(*shifts)


def test_outlier_samples_do_not_count():
    x = normal(32, 4, 6, 6) + np.float32(1)
    broken = x.copy()
    broken[3, 0, 0, 0] = 1e6
    mod = build(lambda b, x: b.emit(NN.conv2d(x, const(3, 4, 1, 1)), "last"), x=x.shape)
    good, _ = calibrated(mod, x, config=FOUR_BITS)
    shifts = [
        predict_shifts(good, calibrated(mod, data, config=FOUR_BITS)[1])["last"]
        for data in (x, broken)
    ]
    np.testing.assert_allclose(shifts[1], shifts[0], atol=0.05 * np.abs(shifts[0]).max())


def test_layers_without_known_means_or_with_weights_computed_at_run_time_have_none():
    x = normal(8, 4, 6, 6)
    mod, statistics = calibrated(build(after_max_pool, x=x.shape), x)
    stripped = {
        name: TensorStatistics(
            histogram=known.histogram, sample_min=known.sample_min, sample_max=known.sample_max
        )
        for name, known in statistics.items()
    }
    assert predict_shifts(mod, Statistics(stripped, samples=8)) == {}
    assert list(predict_shifts(mod, statistics)) == ["first", "last"]

    def product(b, x):
        return b.emit(R.matmul(x, b.emit(R.permute_dims(x, [1, 0]))), "product")

    square = normal(4, 4)
    assert predict_shifts(*calibrated(build(product, x=(4, 4)), square)) == {}
