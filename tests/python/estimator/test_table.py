import dataclasses
from itertools import product

import numpy as np
import pytest

from estimator.samples import GRIDS, tensors
from tvm_quant.errors import ConfigError
from tvm_quant.estimator import (
    ESTIMATORS,
    ActivationEstimator,
    WeightEstimator,
    activation_estimator,
    estimator_names,
    scale_zero_point,
    weight_estimator,
)
from tvm_quant.op import QuantSpec
from tvm_quant.op.simulated_quantize import simulated_quantize_numpy
from tvm_quant.statistics import TensorStatistics

ACTIVATION = estimator_names(ActivationEstimator)
WEIGHT = estimator_names(WeightEstimator)
STATISTICS = {name: TensorStatistics.of(values, samples=16) for name, values in tensors().items()}
OPTIONS = {
    "percentile": {"percentile": [99.9, 100]},
    "norm": {"p": [1, 2, 8]},
    "moving_average": {"momentum": [0, 0.5, 0.99]},
    "kl_divergence": {"bins": [2048, 8192]},
    "kl_symmetric": {"bins": [1024], "clipped": [0]},
    "global_scale": {"value": [0.5, 100]},
    "robust": {"p": [2, 4], "fence": [1], "margin": [0, 5], "share": [0, 0.5]},
}


def variants(names):
    """(name, options) for the defaults and for each option alone."""
    for name in names:
        yield pytest.param(name, {}, id=name)
        for option, values in OPTIONS.get(name, {}).items():
            for value in values:
                yield pytest.param(name, {name: {option: value}}, id=f"{name}-{option}-{value}")


@pytest.mark.parametrize(("name", "options"), list(variants(ACTIVATION)))
def test_every_method_and_option_finds_a_sound_range_for_every_tensor(name, options):
    estimator = activation_estimator(name, options)
    for (kind, stats), spec in product(STATISTICS.items(), GRIDS.values()):
        found = estimator.range(stats, spec)
        assert np.isfinite([found.low, found.high]).all(), kind
        assert found.low <= 0 <= found.high, kind
        scale, _ = scale_zero_point(found.low, found.high, spec)
        assert np.isfinite(scale) and scale > 0, kind
        if name != "global_scale":
            reach = max(-stats.minimum, stats.maximum, 0) * (1 + 1e-6)
            assert -reach <= found.low and found.high <= reach, kind


@pytest.mark.parametrize("name", ACTIVATION)
def test_one_sample_is_enough(name):
    stats = TensorStatistics.of(np.float32([[-1, 0, 2]]))
    found = activation_estimator(name).range(stats, GRIDS["u8"])
    assert found.low < 0 < found.high


@pytest.mark.parametrize("axis", [None, 0, 1, 3])
@pytest.mark.parametrize(("name", "options"), list(variants(WEIGHT)))
def test_every_weight_method_gives_a_scale_for_every_axis(name, options, axis):
    weight = np.random.default_rng(0).normal(size=(6, 4, 3, 5)).astype(np.float32)
    for grid in ("s8", "s4", "s2", "s8_affine", "u8"):
        check_weight_scale(weight, name, options, grid, axis)


def check_weight_scale(weight, name, options, grid, axis):
    spec = dataclasses.replace(GRIDS[grid], axis=axis)
    scale, zero_point = weight_estimator(name, options).weight_scale(weight, spec)
    shape = tuple(n if i == axis else 1 for i, n in enumerate(weight.shape))
    assert scale.shape == zero_point.shape == (() if axis is None else shape)
    assert scale.dtype == np.float32 and (scale > 0).all()
    error = np.abs(simulated_quantize_numpy(weight, scale, zero_point, spec) - weight)
    assert np.median(error / scale) <= 0.5


def test_every_row_is_named_and_summarized():
    for name, row in ESTIMATORS.items():
        assert row.name == name and row.summary
        assert isinstance(row, ActivationEstimator | WeightEstimator)


def test_the_roles_are_as_documented():
    assert set(WEIGHT) == {"max", "power2", "mse", "percentile"}
    assert set(ACTIVATION) == {
        "robust",
        "minmax",
        "moving_average",
        "percentile",
        "kl_divergence",
        "kl_symmetric",
        "mse",
        "norm",
        "global_scale",
    }


def test_unknown_names_and_options_list_the_valid_ones():
    with pytest.raises(ConfigError, match=r"'minimax' is no estimator of activation .*'minmax'"):
        activation_estimator("minimax")
    with pytest.raises(ConfigError, match=r"'robust' estimates no weight ranges; .*'max'"):
        weight_estimator("robust")
    with pytest.raises(ConfigError, match=r"'norm' has no option.*\['power'\]; it has \['p'\]"):
        activation_estimator("norm", {"norm": {"power": 2}})


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("percentile", "percentile", 101),
        ("percentile", "percentile", 49),
        ("norm", "p", 0.5),
        ("moving_average", "momentum", 1),
        ("kl_divergence", "bins", 128),
        ("kl_symmetric", "clipped", 1.5),
        ("global_scale", "value", 0),
        ("robust", "share", 0.9),
        ("robust", "margin", -1),
    ],
)
def test_options_outside_their_range_are_refused(name, option, value):
    with pytest.raises(ConfigError, match=f"Option {option} of estimator '{name}' is {value}"):
        activation_estimator(name, {name: {option: value}})


def test_options_of_other_estimators_are_ignored():
    assert activation_estimator("norm", {"percentile": {"percentile": 99}}) == ESTIMATORS["norm"]


def test_a_grouped_transposed_convolution_has_a_scale_per_block_and_channel():
    weight = np.random.default_rng(0).normal(size=(4, 3, 2, 2)).astype(np.float32)
    scale, _ = weight_estimator("max").weight_scale(
        weight, QuantSpec(narrow=True, axis=1, groups=2)
    )
    expected = np.abs(weight.reshape(2, 2, 3, 4)).max(axis=(1, 3)) / 127
    np.testing.assert_allclose(scale[:, :, 0, 0], np.repeat(expected, 2, axis=0), rtol=1e-6)
