"""What Relay's own tests of automatic quantization demanded, with results that are checked.

Those tests mostly asked that nothing is raised; here the integer layers are counted out and the
result is compared with the float network.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm

import tvm_relay as relay
from relay_networks import (
    ALL,
    MODES,
    Layers,
    error_of,
    image,
    layers,
    outputs,
    quantized,
    relative_error,
    samples,
)
from tvm_quant.errors import UnsupportedError
from tvm_quant.ir import bindings, constant_value, op_name
from tvm_relay import quantize

nn = relay.nn
BOUND = 0.03
PERCENTILE = MODES["percentile"]


def gate() -> Any:
    return relay.sigmoid(relay.var("gate", shape=(1, 16, 1, 1)))


@pytest.mark.parametrize("level", [2, 3])
@pytest.mark.parametrize("pooled", [False, True], ids=["input", "pool"])
def test_a_gate_multiplies_channels_at_any_level(pooled, level):
    weight = relay.var("w", shape=(16, 16, 3, 3))
    value = nn.relu(nn.conv2d(image(16, 16), weight, padding=(1, 1), channels=16))
    network = value * (nn.global_avg_pool2d(value) if pooled else gate())
    network = relay.IRModule.from_expr(network)
    params = {"w": Layers().normal((16, 16, 3, 3), 0.1)}
    bound = quantize.prerequisite_optimize(network, params)
    data = samples(bound)
    with tvm.transform.PassContext(opt_level=level):
        mod = quantized(network, params, data, **PERCENTILE)
    assert layers(mod) == ["int32"]
    assert relative_error(bound, mod, data) < BOUND


@pytest.mark.parametrize("skipped", [[], [0], [1], [0, 1]])
def test_exactly_the_convolutions_that_are_named_stay_in_float(skipped):
    make = Layers()
    network = make.block(make.block(image(16), 16, 16), 16, 16) * gate()
    kinds = layers(quantized(network, skip_conv_layers=skipped))
    assert kinds == ["float32" if index in skipped else "int32" for index in range(2)]


def test_a_convolution_behind_a_pool_is_quantized():
    make = Layers()
    pooled = nn.global_avg_pool2d(make.block(image(16), 16, 16))
    network = make.block(pooled, 16, 16, size=1) * gate()
    data = samples(network)
    mod = quantized(network, dataset=data, **PERCENTILE)
    assert layers(mod) == ["int32", "int32"]
    assert relative_error(network, mod, data) < BOUND


def test_flattening_moves_integers():
    make = Layers()
    flat = nn.batch_flatten(nn.relu(make.conv(image(), 16, 4)))
    network = nn.dense(flat, relay.const(make.normal((5, 1024), 0.05)))
    mod = quantized(network)
    assert layers(mod, "reshape") == ["int8"]
    assert layers(mod) == ["int32", "int32"]


def test_a_product_of_two_activations_is_integer():
    make = Layers()
    rows = relay.reshape(nn.batch_flatten(make.conv(image(4, 16), 8, 4)), (1, 32, 64))
    network = nn.batch_matmul(rows, relay.sigmoid(relay.var("other", shape=(1, 16, 64))))
    data = samples(network)
    mod = quantized(network, dataset=data, **PERCENTILE)
    assert layers(mod) == ["int32", "int32"]
    assert set(layers(mod, "reshape")) == {"int8"}
    assert relative_error(network, mod, data) < BOUND


def dense_and_softmax(rounds: int = 2) -> Any:
    """Rounds of dense on the last axis beside the softmax of a convolution, added."""
    make = Layers()
    value = relay.var("x", shape=(1, 3, 24, 12))
    for index in range(rounds):
        rows = relay.reshape(value, (72, 12))
        dense = nn.relu(nn.dense(rows, relay.const(make.normal((12, 12), 0.4))))
        value = relay.reshape_like(dense, value) + nn.softmax(make.conv(value, 3, 3))
        if index < rounds - 1:
            value = nn.bias_add(value, relay.const(make.normal((3,))))
            moments = [relay.const(np.full(3, n, "float32")) for n in (1.2, 0.1, 0.2, 0.9)]
            value = nn.batch_norm(value, *moments)[0]
    return value


def test_calibration_does_not_depend_on_the_target_around_it():
    network = dense_and_softmax()
    data = samples(network, 5)
    outside = quantized(network, dataset=data, **MODES["kl_divergence"])
    with tvm.target.Target("llvm"):
        inside = quantized(network, dataset=data, **MODES["kl_divergence"])
    tvm.ir.assert_structural_equal(inside, outside)
    assert relative_error(network, outside, data) < BOUND


def test_chunks_of_calibration_change_nothing():
    network = dense_and_softmax()
    data = samples(network, 5)
    mods = [
        quantized(network, dataset=data, calibrate_chunk_by=chunk, **MODES["kl_divergence"])
        for chunk in (-1, 2)
    ]
    tvm.ir.assert_structural_equal(*mods)


def test_percentiles_of_few_values_are_their_maximum():
    network = Layers().conv(image(), 4, 4)
    data = samples(network)
    mod = quantized(network, dataset=data, do_simulation=True, **PERCENTILE)
    (scale,) = [
        float(constant_value(call.args[1]))
        for call in (b.value for b in bindings(mod["main"]))
        if op_name(call) == "tvm_quant.simulated_quantize" and call.args[0] in mod["main"].params
    ]
    largest = max(float(np.abs(batch["x"]).max()) for batch in data)
    assert scale == pytest.approx(largest / 127, rel=1e-3)


@pytest.mark.parametrize("mode", ["enabled", "fully_integral"])
def test_partitioned_conversions_are_refused_before_any_work(mode):
    with (
        pytest.raises(UnsupportedError, match=f"partition_conversions='{mode}'"),
        quantize.qconfig(partition_conversions=mode),
    ):
        pass


def biased(network: Any) -> Any:
    return nn.bias_add(network, relay.const(Layers(3).normal((4,))))


@pytest.mark.parametrize(
    ("network", "kinds"),
    [
        (lambda make: make.conv(image(name="a"), 4, 4) + make.conv(image(name="b"), 4, 4), 2),
        (lambda make: make.conv(biased(image()), 4, 4), 1),
        (lambda make: make.conv(biased(make.conv(image(), 4, 4)), 4, 4), 2),
        (lambda make: biased(make.conv(image(), 4, 4)), 1),
    ],
    ids=["two inputs", "bias in front", "bias between", "bias behind"],
)
def test_biases_anywhere_and_several_inputs_leave_integer_convolutions(network, kinds):
    source = network(Layers())
    data = samples(source)
    mod = quantized(source, dataset=data, **PERCENTILE)
    assert layers(mod) == ["int32"] * kinds
    assert relative_error(source, mod, data) < BOUND


def test_a_sum_alone_is_not_worth_quantizing():
    network = relay.var("x", shape=(10, 10)) + relay.var("y", shape=(10, 10))
    data = samples(network)
    with pytest.warns(UserWarning, match="Nothing was quantized"):
        mod = quantized(network)
    np.testing.assert_array_equal(outputs(mod, data)[0], outputs(network, data)[0])


def test_weights_above_the_global_scale_are_rescaled_upwards():
    """256 is a power of two, 128 steps of 2: the grid ends at 127 of them."""
    weight = relay.const(np.full((16, 16, 3, 3), 256.0, "float32"))
    network = nn.relu(nn.conv2d(image(16, 16), weight, padding=(1, 1), channels=16))
    (got,) = outputs(quantized(network, skip_conv_layers=None), samples(network))
    codes = [np.clip(np.rint(b["x"] / (8 / 127)), -127, 127) for b in samples(network)]
    want = np.concatenate([np.maximum(window_sums(code) * 254 * 8 / 127, 0) for code in codes])
    np.testing.assert_allclose(got.reshape(4, 16, 16, 16), want[:, None].repeat(16, 1), rtol=1e-5)


def window_sums(codes: np.ndarray) -> np.ndarray:
    """Sums over all channels and windows of 3x3: (1, C, H, W) to (1, H, W)."""
    padded = np.pad(codes.sum(1), ((0, 0), (1, 1), (1, 1)))
    return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2)).sum((-1, -2))


def test_dense_does_not_follow_the_skip_of_convolutions():
    make = Layers()
    weight, bias = relay.const(make.normal((1, 4096), 0.01)), relay.const(make.normal((1,)))
    dense = nn.bias_add(nn.dense(relay.var("rows", shape=(1, 4096)), weight), bias)
    network = relay.Tuple((dense, make.conv(image(), 16, 4)))
    mod = quantized(network, skip_conv_layers=[0])
    assert (layers(mod, "nn.conv2d"), layers(mod, "matmul")) == (["float32"], ["int32"])


def positive(data: Any, seed: int) -> Any:
    weight = np.random.default_rng(seed).uniform(size=(16, 16, 3, 3)).astype("float32")
    return nn.conv2d(data, relay.const(weight), padding=(1, 1), channels=16)


@pytest.mark.parametrize("left", ["plain", "convolution"])
def test_sums_of_unquantized_and_quantized_sides_stay_close(left):
    convolution = positive(image(16, 16, "r"), 0)
    sides = {
        "plain": relay.var("l", shape=(16, 1, 1)),
        "convolution": positive(image(16, 16, "l"), 1),
    }
    network = nn.global_avg_pool2d(relay.add(sides[left], convolution))
    data = samples(network, 1)
    mod = quantized(network, dataset=data, **{**MODES["kl_divergence"], "skip_conv_layers": None})
    (want,), (got,) = outputs(network, data), outputs(mod, data)
    np.testing.assert_allclose(got, want, rtol=0.1, atol=0.1)


def test_a_single_convolution_computes_what_relay_computed():
    """Scale 4 for data, a power of two for each channel of weights, no shift of the result."""
    make = Layers()
    weight = make.normal((3, 3, 3, 3), 0.3)
    network = nn.conv2d(image(3, 16), relay.const(weight), padding=(1, 1), channels=3)
    mod = quantized(network, global_scale=4.0)
    data = samples(network, 1)
    (got,) = outputs(mod, data)
    step = 4 / 127
    codes = np.clip(np.rint(data[0]["x"] / step), -127, 127) * step
    scales = [b.value for b in bindings(mod["main"]) if op_name(b.value) == "relax.multiply"]
    weight_scale = constant_value(scales[-1].args[1]).reshape(-1, 1, 1, 1) / step
    np.testing.assert_array_equal(np.log2(weight_scale * 128) % 1, 0)
    grid = np.clip(np.rint(weight / weight_scale), -127, 127) * weight_scale
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(codes, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3)
    )
    want = np.einsum("nihwkl,oikl->nohw", windows.astype("float64"), grid)
    np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-4, atol=1e-5)


def test_defaults_skip_the_first_convolution_and_dense_layers():
    make = Layers()
    features = make.block(make.block(image(), 4, 4), 4, 4)
    network = nn.dense(nn.batch_flatten(features), relay.const(make.normal((5, 256), 0.1)))
    with quantize.qconfig():
        inside = quantize.quantize(relay.IRModule.from_expr(network))
    assert layers(inside) == ["float32", "int32", "float32"]
    tvm.ir.assert_structural_equal(inside, quantize.quantize(relay.IRModule.from_expr(network)))


def test_stages_by_hand_make_the_same_network():
    make = Layers()
    network = relay.IRModule.from_expr(make.conv(make.block(image(), 4, 4), 4, 4))
    data = samples(network["main"])
    settings = {**ALL, **PERCENTILE, "match_channel_scales": False, "weight_rounding": "nearest"}
    with quantize.qconfig(**settings):
        want = quantize.quantize(network, None, data)
        stages = [
            quantize.partition(),
            quantize.annotate(),
            quantize.calibrate(data),
            quantize.realize(),
        ]
        mod = quantize.prerequisite_optimize(network)
        got = tvm.transform.Sequential(stages)(mod)
    tvm.ir.assert_structural_equal(got, want)


def test_statistics_are_collected_for_every_quantizer():
    network = Layers().conv(image(), 4, 4)
    data = samples(network)
    with quantize.qconfig(**ALL):
        mod = quantize.annotate()(quantize.prerequisite_optimize(network))
        statistics = quantize.collect_stats(mod, data)
    assert len(statistics) == 1


def test_residual_networks_are_as_good_as_relay_made_them():
    """Its best for two residual blocks of five convolutions was a relative error of 0.027."""
    make, data = Layers(), image(16, 16)
    first = make.block(data, 16, 16)
    second = nn.relu(make.conv(make.block(first, 16, 16), 16, 16) + first)
    network = nn.relu(make.conv(make.block(second, 16, 16), 16, 16) + second)
    assert error_of(network, **PERCENTILE) < 0.0267
