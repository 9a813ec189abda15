"""The networks on which the old stack was tested, and what holds for them here."""

import numpy as np
import pytest
import tvm

import tvm_relay as relay
from tvm_quant.ir import bindings, constant_value, op_name
from tvm_quant.op import is_simulated, scale_of
from tvm_relay_networks import (
    Net,
    data,
    error,
    layers,
    operators,
    outputs,
    quantized,
    relative,
    samples,
)


def gated(*, by_pool: bool) -> relay.Call:
    a = relay.nn.relu(Net().conv(data(1, 16, 32, 32), 16, 16))
    gate = relay.nn.global_avg_pool2d(a) if by_pool else relay.sigmoid(data(16, 1, 1, name="g"))
    return a * gate


@pytest.mark.parametrize("by_pool", [False, True], ids=["sigmoid", "pool"])
@pytest.mark.parametrize("level", [2, 3])
def test_a_gate_after_a_convolution_is_sound_at_every_level(by_pool, level):
    with tvm.transform.PassContext(opt_level=level):
        assert layers(quantized(gated(by_pool=by_pool))) == ["nn.conv2d"]
        assert error(gated(by_pool=by_pool)) < 0.03


@pytest.mark.parametrize("skip", [[], [0], [1], [0, 1]])
def test_exactly_the_named_convolutions_stay_in_float(skip):
    net = Net()
    y = relay.nn.relu(net.conv(data(1, 16, 32, 32), 16, 16, k=3))
    y = relay.nn.relu(net.conv(y, 16, 8, k=3)) * relay.sigmoid(data(8, 1, 1, name="g"))
    mod = quantized(y, mode="global_scale", skip_conv_layers=skip)
    channels = {
        str(b.var.ty.dtype): int(b.var.ty.shape[1])
        for b in bindings(mod["main"])
        if op_name(b.value) == "relax.nn.conv2d"
    }
    assert len(layers(mod, "float32")) == len(skip)
    assert len(layers(mod)) == 2 - len(skip)
    if len(skip) == 1:
        assert channels == {"float32": [16, 8][skip[0]], "int32": [8, 16][skip[0]]}


def test_a_convolution_after_a_global_pool_is_quantized():
    net = Net()
    y = relay.nn.global_avg_pool2d(relay.nn.relu(net.conv(data(1, 16, 32, 32), 16, 16)))
    y = relay.nn.relu(net.conv(y, 16, 16, k=1)) * relay.sigmoid(data(16, 1, 1, name="g"))
    assert layers(quantized(y)) == ["nn.conv2d", "nn.conv2d"]


def test_a_product_of_batches_takes_integers_through_a_flattening():
    y = relay.nn.batch_flatten(Net().conv(data(1, 4, 16, 16), 4, 8))
    y = relay.reshape(y, (1, 32, 64))
    y = relay.nn.batch_matmul(y, relay.sigmoid(data(4, 16, 64, name="z")))
    mod = quantized(y)
    assert layers(mod) == ["nn.conv2d", "matmul"]
    moved = [b.var.ty.dtype for b in bindings(mod["main"]) if op_name(b.value) == "relax.reshape"]
    assert moved
    assert {str(dtype) for dtype in moved} <= {"int8"}


def several_kinds() -> relay.Call:
    """Dense layers along the last axis, reshapes, a softmax of a convolution, twice."""
    net, y = Net(), data(1, 3, 24, 12)
    for turn in range(2):
        dense = relay.nn.relu(relay.nn.dense(relay.reshape(y, (72, 12)), net.weight(12, 12)))
        y = relay.reshape_like(dense, y) + relay.nn.softmax(net.conv(y, 3, 3))
        if turn == 0:
            y = relay.nn.bias_add(y, relay.const(net.rng.rand(3).astype("float32")))
            norm = [relay.const((net.rng.rand(3) + 0.5).astype("float32")) for _ in range(4)]
            y = relay.nn.batch_norm(y, *norm)[0]
    return y


def test_calibration_is_the_same_inside_and_outside_a_target():
    outside = quantized(several_kinds())
    with tvm.target.Target("llvm"):
        inside = quantized(several_kinds())
    tvm.ir.assert_structural_equal(inside, outside)


def test_calibration_is_the_same_in_chunks():
    whole = quantized(several_kinds())
    tvm.ir.assert_structural_equal(quantized(several_kinds(), calibrate_chunk_by=2), whole)


def test_percentiles_of_few_samples_are_extremes():
    extremes = quantized(several_kinds(), mode="minmax", symmetric_activations=True)
    percentiles = quantized(several_kinds(), mode="percentile")
    feed = samples(extremes, 1, seed=3)[0]
    assert relative(outputs(extremes, feed), outputs(percentiles, feed)) < 0.02


def test_percentiles_of_many_values_are_those_of_sorted_magnitudes():
    y = Net().conv(data(1, 4, 128, 128), 4, 4)
    mod = quantized(y, mode="percentile", do_simulation=True)
    (quantizer,) = (
        b.value
        for b in bindings(mod["main"])
        if is_simulated(b.value) and b.value.args[0].same_as(mod["main"].params[0])
    )
    values = np.sort(np.abs([feed["x"] for feed in samples(relay.to_relax(y))]), axis=None)
    wanted = values[int(len(values) * 0.99999)]
    assert wanted < values[-1]
    np.testing.assert_allclose(scale_of(quantizer)[0] * 127, wanted, rtol=2**-10)


def test_one_convolution_with_a_global_scale_is_this_arithmetic():
    weight = (np.random.RandomState(0).randn(3, 3, 3, 3) / 5).astype("float32")
    y = relay.nn.conv2d(data(1, 3, 12, 12), relay.const(weight), padding=(1, 1))
    mod = quantized(y, mode="global_scale", global_scale=4.0, weight_scale="power2")
    feed = samples(mod, 1)[0]
    step = 2 ** np.ceil(np.log2(np.abs(weight).max((1, 2, 3)))).reshape(3, 1, 1) / 128
    kernel = np.clip(np.round(weight / step[:, None]), -127, 127)
    codes = np.pad(np.round(feed["x"] * (127 / 4)), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(codes, (3, 3), (2, 3))
    sums = np.einsum("nchwij,ocij->nohw", windows, kernel)
    np.testing.assert_allclose(outputs(mod, feed)[0], sums * step * (4 / 127), rtol=1e-6)


def test_large_weights_meet_no_shift_by_a_negative_amount():
    x = data(1, 16, 16, 16)
    weight = relay.const(np.full((16, 16, 3, 3), 256.0, "float32"))
    y = relay.nn.relu(relay.nn.conv2d(x, weight, padding=(1, 1)))
    settings = {"global_scale": 8.0, "skip_conv_layers": None, "weight_scale": "power2"}
    mod = quantized(y, mode="global_scale", **settings)
    shifts = [b.value for b in bindings(mod["main"]) if op_name(b.value) == "relax.left_shift"]
    assert all(np.all(constant_value(call.args[1]) >= 0) for call in shifts)
    feed = {"x": np.random.RandomState(0).uniform(-8, 8, (1, 16, 16, 16)).astype("float32")}
    (got,) = outputs(mod, feed)
    codes = np.round(np.clip(feed["x"] * 127 / 8, -127, 127))
    real = np.pad(codes * 8 / 127, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(real, (3, 3), (2, 3))
    wanted = np.repeat(np.maximum(windows.sum((1, 4, 5)) * 256, 0)[:, None], 16, 1)
    assert relative([wanted], [got]) < 0.01


def test_a_dense_layer_does_not_follow_the_skip_of_convolutions():
    net = Net()
    dense = relay.nn.dense(data(1, 4096, name="flat"), net.weight(1, 4096))
    dense = relay.nn.bias_add(dense, relay.const(np.ones(1, "float32")), axis=1)
    y = relay.Tuple((dense, net.conv(data(1, 16, 16, 16), 16, 16)))
    settings = {"skip_dense_layer": False, "skip_conv_layers": [0]}
    mod = quantized(y, mode="global_scale", **settings)
    assert layers(mod) == ["matmul"]
    assert layers(mod, "float32") == ["nn.conv2d"]


@pytest.mark.parametrize("both", [False, True], ids=["variable", "convolutions"])
def test_a_sum_before_a_pool_is_close_to_float(both):
    net, x = Net(), data(1, 16, 16, 16)
    other = data(1, 16, 16, 16, name="r") if both else data(16, 1, 1, name="r")
    left = net.conv(other, 16, 16) if both else other
    y = relay.nn.global_avg_pool2d(left + net.conv(x, 16, 16))
    mod = relay.to_relax(y)
    feed = samples(mod, 1, seed=5)[0]
    (wanted,), (got,) = outputs(mod, feed), outputs(quantized(y, skip_conv_layers=None), feed)
    np.testing.assert_allclose(got, wanted, rtol=0.1, atol=0.1)


def test_simulation_keeps_float_and_the_quantizers():
    y = Net().conv(data(1, 4, 8, 8), 4, 4)
    mod = quantized(y, do_simulation=True)
    assert layers(mod, "float32") == ["nn.conv2d"]
    assert "tvm_quant.simulated_quantize" in operators(mod, "float32")
