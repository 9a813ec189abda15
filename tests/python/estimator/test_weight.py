"""Weight estimators against brute force, and on the weights that break such methods."""

import dataclasses

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from estimator.samples import GRIDS, S8
from tvm_quant.estimator import weight_estimator
from tvm_quant.op import QuantSpec
from tvm_quant.op.simulated_quantize import simulated_quantize_numpy

PER_CHANNEL = dataclasses.replace(S8, axis=0)
NAMES = ("max", "power2", "mse", "percentile")


def weights(seed=0, shape=(8, 4, 3, 3)):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def squared_error(weight, scale, spec):
    return np.sum((simulated_quantize_numpy(weight, scale, 0, spec) - weight.astype(float)) ** 2)


def test_max_maps_the_largest_magnitude_of_each_channel_to_127():
    weight = weights()
    scale, zero_point = weight_estimator("max").weight_scale(weight, PER_CHANNEL)
    expected = np.abs(weight).max(axis=(1, 2, 3), keepdims=True) / 127
    assert_allclose(scale, expected, rtol=1e-6)
    assert_array_equal(zero_point, np.zeros_like(zero_point))


@given(st.floats(1e-20, 1e20))
def test_power2_covers_the_magnitude_with_a_power_of_two(magnitude):
    scale, _ = weight_estimator("power2").weight_scale(np.float32([magnitude]), S8)
    assert np.frexp(scale)[0] == 0.5
    assert 64 * scale < np.float32(magnitude) <= 128 * scale


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999), st.sampled_from([2, 3, 4, 8]))
@example(167, 8)
@example(664, 8)
def test_mse_comes_close_to_a_full_search(seed, bits):
    weight = weights(seed, (1, 200))
    spec = QuantSpec(bits=bits, narrow=True)
    scale, _ = weight_estimator("mse").weight_scale(weight, spec)
    full = np.abs(weight).max() / spec.qmax
    best = min(squared_error(weight, full * share, spec) for share in np.linspace(0.1, 1, 900))
    assert squared_error(weight, scale, spec) <= 1.15 * best


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_mse_is_never_worse_than_max(bits):
    spec = QuantSpec(bits=bits, narrow=True, axis=0)
    weight = weights() ** 3
    by_mse, by_max = (weight_estimator(n).weight_scale(weight, spec)[0] for n in ("mse", "max"))
    assert squared_error(weight, by_mse, spec) <= squared_error(weight, by_max, spec) * (1 + 1e-9)


def test_percentile_is_that_of_each_channel():
    weight = weights(shape=(4, 1000))
    options = {"percentile": {"percentile": 99.0}}
    scale, _ = weight_estimator("percentile", options).weight_scale(weight, PER_CHANNEL)
    assert_allclose(scale[:, 0] * 127, np.percentile(np.abs(weight), 99, axis=1), rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_channels_of_zeros_take_the_largest_scale(name):
    weight = weights()
    weight[2] = 0
    scale, _ = weight_estimator(name).weight_scale(weight, PER_CHANNEL)
    others = np.delete(scale, 2, axis=0)
    assert scale[2] == others.max()
    assert_array_equal(
        others, weight_estimator(name).weight_scale(np.delete(weight, 2, 0), PER_CHANNEL)[0]
    )


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("name", NAMES)
def test_weights_of_zeros_have_a_scale(name, grid):
    for axis in (None, 0):
        spec = dataclasses.replace(GRIDS[grid], axis=axis)
        scale, zero_point = weight_estimator(name).weight_scale(np.zeros((3, 2), np.float32), spec)
        assert (scale > 0).all() and np.isfinite(scale).all()
        assert not simulated_quantize_numpy(np.zeros((3, 2)), scale, zero_point, spec).any()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [1e-9, 1e9, 1e-35])
def test_tiny_and_huge_weights_have_scales_in_proportion(name, size):
    plain, _ = weight_estimator(name).weight_scale(weights(), PER_CHANNEL)
    scaled, _ = weight_estimator(name).weight_scale(weights() * np.float32(size), PER_CHANNEL)
    if size > 1e-30:
        assert_allclose(scaled / plain / size, 1, rtol=0.5)
    assert (scaled > 0).all()


def test_an_asymmetric_weight_grid_covers_both_ends():
    weight = np.float32([[-0.1, 0.9], [-1.0, 0.0]])
    spec = QuantSpec(signed=False, symmetric=False, axis=0)
    scale, zero_point = weight_estimator("max").weight_scale(weight, spec)
    error = np.abs(simulated_quantize_numpy(weight, scale, zero_point, spec) - weight)
    assert (error <= 0.51 * scale).all()


@pytest.mark.parametrize("value", [0.5, -2.0])
def test_a_single_weight_is_exact(value):
    scale, _ = weight_estimator("max").weight_scale(np.float32([value]), S8)
    assert_allclose(simulated_quantize_numpy(value, scale, 0, S8), value, rtol=1e-6)
