import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tvm_quant.estimator import ceil_power_of_two, grid_ends, scale_zero_point
from tvm_quant.op import QuantSpec
from tvm_quant.op.simulated_quantize import quantize_numpy, simulated_quantize_numpy

ends = st.floats(-1e30, 1e30, allow_nan=False)
specs = st.builds(
    lambda bits, signed, narrow, symmetric: QuantSpec(
        bits=bits, signed=signed, narrow=narrow and signed, symmetric=symmetric
    ),
    st.integers(2, 16),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
U8 = QuantSpec(signed=False, symmetric=False)
S8 = QuantSpec(narrow=True)


@given(ends, ends, specs, st.booleans())
def test_every_grid_is_sound(a, b, spec, power_of_two):
    low, high = min(a, b), max(a, b)
    scale, zero_point = scale_zero_point(low, high, spec, power_of_two=power_of_two)
    assert scale.dtype == np.float32 and zero_point.dtype == np.int32
    assert np.isfinite(scale) and scale > 0 and np.isfinite(1 / scale)
    assert spec.qmin <= zero_point <= spec.qmax
    assert simulated_quantize_numpy(0.0, scale, zero_point, spec) == 0
    if spec.symmetric:
        assert zero_point == 0
    if power_of_two:
        assert np.frexp(scale)[0] == 0.5 or scale == 1


@given(ends, ends, specs)
def test_the_grid_covers_the_range_up_to_half_a_step(a, b, spec):
    low, high = min(a, b, 0.0), max(a, b, 0.0)
    if spec.symmetric and not spec.signed:
        low = 0.0
    scale, zero_point = scale_zero_point(low, high, spec)
    bottom, top = grid_ends(scale, zero_point, spec)
    assert bottom <= low + 0.501 * scale
    assert top >= high - 0.501 * scale


@given(st.floats(2.0**-60, 1e30), specs)
def test_a_range_at_zero_reaches_its_end_exactly(high, spec):
    scale, zero_point = scale_zero_point(0.0, high, spec)
    assert quantize_numpy(high, scale, zero_point, spec) == spec.qmax
    assert_allclose(simulated_quantize_numpy(high, scale, zero_point, spec), high, rtol=1e-6)


@pytest.mark.parametrize("spec", [U8, S8])
@pytest.mark.parametrize("high", [0.0, 1e-45, 2.0**-110])
def test_a_range_of_nothing_has_scale_one(spec, high):
    scale, zero_point = scale_zero_point(-high, high, spec)
    assert scale == 1.0
    assert zero_point in (0, 128)


def test_positive_and_negative_ranges_are_widened_to_zero():
    assert_array_equal(scale_zero_point(3.0, 5.1, U8), scale_zero_point(0.0, 5.1, U8))
    assert scale_zero_point(-5.1, -3.0, U8)[1] == 255


def test_an_unsigned_symmetric_grid_looks_at_the_upper_end_only():
    scale, zero_point = scale_zero_point(-100.0, 2.55, QuantSpec(signed=False))
    assert_allclose(scale, 0.01, rtol=1e-6)
    assert zero_point == 0


def test_channels_are_calibrated_at_once():
    low, high = np.array([-1.0, 0.0, -4.0]), np.array([1.0, 2.0, 0.0])
    scale, zero_point = scale_zero_point(low, high, U8)
    for channel in range(3):
        single = scale_zero_point(low[channel], high[channel], U8)
        assert (scale[channel], zero_point[channel]) == single


@given(st.floats(1e-30, 1e30))
def test_ceil_power_of_two_is_the_smallest_that_is_not_below(value):
    power = ceil_power_of_two(value)
    assert power / 2 < value <= power
    assert np.frexp(power)[0] == 0.5
