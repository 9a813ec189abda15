import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tvm_quant.estimator import ErrorModel, scale_zero_point
from tvm_quant.op import QuantSpec
from tvm_quant.op.simulated_quantize import simulated_quantize_numpy
from tvm_quant.statistics import TensorStatistics

SPECS = {
    "u8": QuantSpec(signed=False, symmetric=False),
    "s8": QuantSpec(narrow=True),
    "u4": QuantSpec(bits=4, signed=False, symmetric=False),
    "s2": QuantSpec(bits=2, narrow=True),
    "u16": QuantSpec(bits=16, signed=False, symmetric=False),
}


def measured(values, scale, zero_point, spec, p):
    rounded = simulated_quantize_numpy(values, scale, zero_point, spec)
    return np.sum(np.abs(rounded.astype(np.float64) - values) ** p)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("name", SPECS)
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 999), low=st.floats(-6, 0), high=st.floats(0.2, 6))
def test_the_expected_error_is_the_measured_one(name, p, seed, low, high):
    spec = SPECS[name]
    values = np.random.default_rng(seed).normal(size=16_000).astype(np.float32)
    scale, zero_point = scale_zero_point(low, high, spec)
    model = ErrorModel(TensorStatistics.of(values), p)
    (expected,) = model.error(scale[None], zero_point[None], spec)
    exact = measured(values, scale, zero_point, spec, p)
    assert_allclose(expected, exact, rtol=0.15, atol=len(values) * (scale / 4) ** p)


@pytest.mark.parametrize("name", ["u8", "s8", "u4"])
def test_values_on_the_grid_make_little_error(name):
    spec = SPECS[name]
    values = np.arange(spec.qmin, spec.qmax + 1, dtype=np.float32)
    scale, zero_point = scale_zero_point(spec.qmin, spec.qmax, spec)
    (error,) = ErrorModel(TensorStatistics.of(values), 2.0).error(
        scale[None], zero_point[None], spec
    )
    assert error < 0.3 * len(values) / 12


def test_zeros_make_no_error():
    stats = TensorStatistics.of(np.zeros(1000, np.float32))
    assert ErrorModel(stats, 2.0).error(np.float32([0.1]), np.int32([7]), SPECS["u8"]) == 0


def test_values_beyond_the_grid_are_clipped():
    stats = TensorStatistics.of(np.float32([10.0, -10.0]))
    (error,) = ErrorModel(stats, 2.0).error(np.float32([1 / 127]), np.int32([0]), SPECS["s8"])
    assert_allclose(error, 2 * 81.0, rtol=0.05)
