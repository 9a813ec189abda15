"""Networks that Relay's quantization refused, broke or distorted: here they stay close to float.

Each is small: convolutions of 3x3 over (1, 4, 8, 8) with He-scaled weights. A sound 8-bit result
has a relative error of 0.015 to 0.06; the bound is the middle of that.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm

import tvm_relay as relay
from relay_networks import (
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
from tvm_quant.errors import ConfigError, DatasetError
from tvm_relay import quantize

nn = relay.nn
BOUND = 0.03
KL, PERCENTILE = MODES["kl_divergence"], MODES["percentile"]

Tail = Callable[[Layers, Any], Any]


def float_and_integer_branch(tail: Tail) -> Any:
    """What DenseNet does: the first convolution stays in float, and joins the second."""
    make = Layers()
    first = make.block(image(), 4, 4)
    return tail(make, relay.concatenate([first, make.conv(first, 4, 4)], axis=1))


def on_convolution(tail: Tail) -> Any:
    make = Layers()
    return tail(make, make.conv(image(), 4, 4))


def branches(count: int, gain: float, tail: Callable[[Any], Any]) -> Any:
    make, data = Layers(), image()
    return relay.concatenate([tail(make.block(data, 4, 4, gain=gain)) for _ in range(count)], 1)


def two_layers(bias: float) -> Any:
    make = Layers()
    first = nn.bias_add(make.conv(image(), 4, 4), relay.const(np.full(4, bias, "float32")))
    return make.conv(nn.relu(first), 4, 4)


def residual(gain: float) -> Any:
    make, data = Layers(), image()
    return nn.relu(make.conv(data, 4, 4) + make.conv(data, 4, 4, gain=gain))


def classifier(pool: Callable[[Any], Any]) -> Any:
    make = Layers()
    features = nn.batch_flatten(pool(make.block(image(4, 16), 8, 4)))
    return nn.dense(features, relay.const(make.normal((5, 8), 0.3)))


def join_bias(make: Layers, joined: Any) -> Any:
    return nn.bias_add(joined, relay.const(make.normal((8,))))


@pytest.mark.parametrize(
    ("tail", "settings", "kinds"),
    [
        (lambda _make, y: nn.relu(y), MODES["global_scale"], ["float32", "int32"]),
        (join_bias, PERCENTILE, ["float32", "int32"]),
        (lambda make, y: make.conv(y, 4, 8), KL, ["float32", "int32", "int32"]),
    ],
    ids=["relu", "bias", "convolution"],
)
def test_a_float_branch_joins_a_quantized_one(tail, settings, kinds):
    network = float_and_integer_branch(tail)
    data = samples(network)
    mod = quantized(network, dataset=data, **{**settings, "skip_conv_layers": [0]})
    assert layers(mod) == kinds
    assert relative_error(network, mod, data) < BOUND


def test_three_branches_with_values_beyond_the_global_scale_do_not_wrap():
    network = branches(3, 6.0, lambda y: y)
    (want,) = outputs(network, samples(network))
    assert want.max() > 16
    assert error_of(network, **KL) < BOUND


def test_pooled_branches_are_joined_at_one_scale():
    network = branches(2, 1.0, lambda y: nn.max_pool2d(y, (2, 2), (2, 2)))
    assert error_of(network, **KL) < BOUND


@pytest.mark.parametrize(
    "tail",
    [
        lambda _make, y: y * relay.clip(y + 3.0, 0.0, 6.0) / 6.0,
        lambda _make, y: y * y,
        lambda make, y: nn.relu(y) * nn.relu(make.conv(image(), 4, 4)),
        lambda make, y: y * make.conv(y, 4, 4),
    ],
    ids=["h-swish", "square", "relu times relu", "convolutions"],
)
def test_two_quantized_values_can_be_multiplied(tail):
    assert error_of(on_convolution(tail), **KL) < BOUND


@pytest.mark.parametrize(
    "tail",
    [lambda _make, y: y + 1.0, lambda make, y: make.conv(y * relay.const(1 / 5.6), 4, 4)],
    ids=["sum", "product"],
)
def test_scalars_stand_beside_quantized_values(tail):
    assert error_of(on_convolution(tail), **PERCENTILE) < BOUND


@pytest.mark.parametrize("bias", [0.0, 1e-12, 1e-8])
def test_a_bias_near_zero_does_not_move_the_sums(bias):
    assert error_of(two_layers(bias), weight_scale="max") < BOUND


def test_weights_of_zero_give_zero():
    weight = relay.const(np.zeros((4, 4, 3, 3), "float32"))
    network = nn.conv2d(image(), weight, padding=(1, 1))
    mod = quantized(network, weight_scale="max")
    np.testing.assert_array_equal(outputs(mod, samples(network))[0], 0)


def test_a_branch_that_is_tiny_beside_the_other_does_not_overflow():
    assert error_of(residual(1e-8), weight_scale="power2") < BOUND


def test_bounds_of_a_clip_may_lie_beyond_the_grid():
    def wide(make, y):
        return make.conv(relay.clip(y, -1000.0, 1000.0), 4, 4)

    assert error_of(on_convolution(wide)) < BOUND


def test_the_mean_of_a_global_pool_has_no_bias():
    network = nn.global_avg_pool2d(Layers().block(image(4, 16), 8, 4))
    data = samples(network, 16)
    mod = quantized(network, dataset=data, **PERCENTILE)
    (want,), (got,) = outputs(network, data), outputs(mod, data)
    step = 6.0 / 127  # of the convolution's output, about
    assert abs(float((got - want).mean())) < 0.02 * step


@pytest.mark.parametrize("count_include_pad", [False, True])
def test_means_of_windows_are_rounded(count_include_pad):
    def pooled(make, y):
        pool = nn.avg_pool2d(
            nn.relu(y), (3, 3), padding=(1, 1), count_include_pad=count_include_pad
        )
        return make.conv(pool, 4, 4)

    assert error_of(on_convolution(pooled), **PERCENTILE) < BOUND


@pytest.mark.parametrize(
    ("enabled", "kinds"),
    [
        (["nn.conv2d"], ["int32", "float32"]),
        (["nn.dense"], ["float32", "int32"]),
        ([], ["float32", "float32"]),
    ],
)
def test_only_enabled_operators_are_quantized(enabled, kinds):
    network = classifier(nn.global_avg_pool2d)
    assert layers(quantized(network, debug_enabled_ops=enabled)) == kinds


def test_a_weight_that_is_computed_leaves_its_layer_in_float():
    make, data = Layers(), image()
    weight = nn.relu(relay.var("w", shape=(4, 4, 3, 3)))
    network = make.conv(nn.conv2d(data, weight, padding=(1, 1)), 4, 4)
    mod = quantized(network)
    assert layers(mod) == ["float32", "int32"]
    assert dict(mod["main"].attrs["tvm_quant.float_reasons"])


def test_without_anything_to_quantize_the_network_stays_as_it_is():
    network = nn.softmax(relay.var("x", shape=(1, 8)))
    data = samples(network)
    mod = quantized(network, dataset=data, **KL)
    for got, want in zip(outputs(mod, data), outputs(network, data), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_generator_is_read_once_whatever_the_chunk():
    network = two_layers(0.0)
    data = samples(network)
    at_once = quantized(network, dataset=data, **KL)
    in_turn = quantized(network, dataset=iter(data), calibrate_chunk_by=1, **KL)
    tvm.ir.assert_structural_equal(at_once, in_turn)


@pytest.mark.parametrize(
    ("dataset", "error", "text"),
    [
        (None, ConfigError, "needs a dataset"),
        ([], DatasetError, "gives no samples for input 'x'"),
        ([{}], DatasetError, "x"),
        ([{"x": np.full((1, 4, 8, 8), np.nan, "float32")}], DatasetError, "NaN"),
    ],
    ids=["none", "empty", "missing input", "NaN"],
)
def test_data_that_cannot_calibrate_are_refused(dataset, error, text):
    with pytest.raises(error, match=text):
        quantized(two_layers(0.0), dataset=dataset, **KL)


@pytest.mark.parametrize(
    "pool",
    [
        nn.global_avg_pool2d,
        lambda y: nn.avg_pool2d(y, (16, 16)),
        lambda y: nn.adaptive_avg_pool2d(y, (1, 1)),
    ],
    ids=["global", "window", "adaptive"],
)
def test_what_follows_a_pool_is_quantized(pool):
    network = classifier(pool)
    data = samples(network)
    mod = quantized(network, dataset=data, **PERCENTILE)
    assert layers(mod) == ["int32", "int32"]
    assert relative_error(network, mod, data) < BOUND


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"dtype_activation": "int16"}, "dtype_activation is 'int16'"),
        ({"nbit_activation": 16}, "nbit_activation is 16"),
        ({"dtype_activation": "float32"}, "dtype_activation is 'float32'"),
        ({"dtype_weight": "int4"}, "dtype_weight is 'int4'"),
        ({"nbit_input": 0}, "nbit_input is 0"),
        ({"nbit_weight": 16}, "nbit_weight is 16"),
        ({"global_scale": -1.0}, "global_scale"),
        ({"rounding": "foo"}, "rounding is 'foo'"),
        ({"skip_dense_layers": True}, "skip_dense_layers"),
        ({"paritition_conversions": "enabled"}, "paritition_conversions"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_once(settings, text):
    with pytest.raises(ConfigError, match=text), quantize.qconfig(**settings):
        pass


def test_a_quantized_network_is_not_quantized_again():
    network = two_layers(0.0)
    once = quantized(network)
    data = samples(network)
    twice = quantized(once)
    np.testing.assert_array_equal(outputs(twice, data)[0], outputs(once, data)[0])


def test_a_batch_of_any_size_is_calibrated():
    make = Layers()
    data = relay.var("x", shape=(relay.Any(), 4, 8, 8))
    network = make.conv(make.block(data, 4, 4), 4, 4)
    batches = [{"x": make.normal((3, 4, 8, 8))}, {"x": make.normal((1, 4, 8, 8))}]
    mod = quantized(network, dataset=batches, **PERCENTILE)
    assert layers(mod) == ["int32", "int32"]
    assert relative_error(network, mod, batches) < BOUND


def test_depthwise_channels_of_all_sizes_keep_their_precision():
    make = Layers()
    sizes = np.logspace(-2, 0, 8).astype("float32")
    weight = relay.const(make.normal((8, 1, 3, 3)) * sizes[:, None, None, None])
    network = nn.conv2d(image(8), weight, padding=(1, 1), groups=8, channels=8, kernel_size=(3, 3))
    data = samples(network)
    mod = quantized(network, dataset=data, **PERCENTILE)
    (want,), (got,) = (
        [np.stack(np.split(out, 4)).reshape(4, 8, -1) for out in outputs(it, data)]
        for it in (network, mod)
    )
    norm = np.linalg.norm(want, axis=(0, 2))
    assert (np.linalg.norm(got - want, axis=(0, 2)) / norm).max() < BOUND


def test_parts_of_a_split_are_joined_again():
    network = nn.relu(relay.concatenate(relay.split(Layers().block(image(), 4, 4), 2, axis=1), 1))
    assert error_of(network, **PERCENTILE) < BOUND


def test_small_activations_are_calibrated():
    def small(make, y):
        return make.conv(nn.adaptive_avg_pool2d(nn.relu(y), (2, 2)) * relay.const(0.01), 4, 4)

    assert error_of(on_convolution(small), **KL) < BOUND


def test_a_tensor_that_several_layers_read_is_quantized_once():
    make, data = Layers(), image()
    network = relay.Tuple([make.conv(data, 4, 4) for _ in range(3)])
    mod = quantized(network)
    assert layers(mod) == ["int32"] * 3
    assert len(layers(mod, "round")) == 1


def test_nothing_that_is_passed_in_is_changed():
    weight = relay.var("w", shape=(4, 4, 3, 3))
    network = relay.IRModule.from_expr(nn.conv2d(image(), weight, padding=(1, 1)))
    params = {"w": Layers().normal((4, 4, 3, 3))}
    before, main = params["w"].copy(), network["main"]
    as_relax = relay.to_relax(network)
    text = as_relax.script(show_meta=True)
    quantized(network, params)
    quantized(as_relax, params)
    assert network["main"] is main and len(main.params) == 2
    assert as_relax.script(show_meta=True) == text
    np.testing.assert_array_equal(params["w"], before)
