"""Scales rounded to powers of two by the error that they make."""

import numpy as np
import pytest

from tvm_quant.estimator import (
    AbsMax,
    power_of_two_grid,
    power_of_two_weight_scale,
    scale_zero_point,
)
from tvm_quant.op import QuantSpec, simulated_quantize_numpy
from tvm_quant.statistics import TensorStatistics

S8 = QuantSpec(narrow=True)
U8 = QuantSpec(signed=False, symmetric=False)
RNG = np.random.default_rng(0)
SPREADS = {
    "normal": RNG.normal(size=20_000),
    "uniform": RNG.uniform(-1, 1, 20_000),
    "heavy tails": RNG.standard_t(3, 20_000),
    "positive": np.maximum(RNG.normal(size=20_000), 0),
}


def squared_error(data, scale, zero_point, spec):
    return np.square(simulated_quantize_numpy(data, scale, zero_point, spec) - data).sum()


@pytest.mark.parametrize("spec", [S8, U8], ids=["s8", "u8"])
@pytest.mark.parametrize("data", SPREADS.values(), ids=SPREADS)
@pytest.mark.parametrize("reach", [0.3, 0.45, 0.6, 0.8, 1.0])
def test_no_power_of_two_next_to_the_scale_makes_a_smaller_error(data, spec, reach):
    data = np.float32(data)
    ends = min(data.min(), 0) * reach, data.max() * reach
    exact, _ = scale_zero_point(*ends, spec)
    scale, zero_point = power_of_two_grid(*ends, spec, [TensorStatistics.of(data)])
    assert np.frexp(scale)[0] == 0.5
    assert 0.5 < scale / exact < 2
    other = scale * (2 if scale < exact else 0.5)
    at = zero_point if spec.symmetric else np.rint(spec.qmin - ends[0] / max(other, exact))
    mine = squared_error(data, scale, zero_point, spec)
    assert mine <= 1.02 * squared_error(data, other, np.int32(at), spec)


def test_a_scale_that_is_a_power_of_two_stays():
    scale, _ = power_of_two_grid(-127.0, 127.0, S8, [TensorStatistics.of(np.float32([1.0, -1.0]))])
    assert scale == 1.0


def test_several_tensors_decide_together():
    quiet, loud = np.float32(RNG.normal(size=20_000)), np.float32(RNG.uniform(-100, 100, 20_000))
    spreads = [TensorStatistics.of(data) for data in (quiet, loud)]
    alone, _ = power_of_two_grid(-100.0, 100.0, S8, spreads[:1])
    both, _ = power_of_two_grid(-100.0, 100.0, S8, spreads)
    assert (float(alone), float(both)) == (0.5, 1.0)


@pytest.mark.parametrize(("reach", "steps"), [(8.0, 2.0**-4), (10.0, 2.0**-4), (15.0, 2.0**-3)])
def test_without_a_tensor_the_nearer_power_wins(reach, steps):
    assert power_of_two_grid(-reach, reach, S8)[0] == steps


@pytest.mark.parametrize("spec", [S8, QuantSpec(narrow=True, axis=0)], ids=["tensor", "channel"])
def test_each_channel_of_a_weight_takes_the_power_of_two_that_errs_less(spec):
    weight = RNG.normal(size=(6, 4, 3, 3)) * 2.0 ** RNG.uniform(-4, 4, (6, 1, 1, 1))
    exact, zero_point = AbsMax().weight_scale(weight, spec)
    scale = power_of_two_weight_scale(weight, exact, zero_point, spec)
    assert scale.shape == exact.shape
    np.testing.assert_array_equal(np.frexp(scale)[0], 0.5)
    other = np.where(scale < exact, 2 * scale, scale / 2)
    errors = [
        np.square(np.clip(np.rint(weight / s), -127, 127) * s - weight) for s in (scale, other)
    ]
    axes = None if spec.axis is None else (1, 2, 3)
    assert (errors[0].sum(axis=axes) <= errors[1].sum(axis=axes)).all()
