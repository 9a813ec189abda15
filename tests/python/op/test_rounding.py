import numpy as np
import pytest

from plain_tvm import build, run_one
from tvm_quant.op import Formula, QuantSpec, Rounding, quantize, quantize_numpy, round_numpy

VALUES = [5.5, 2.5, 1.6, 1.1, 0.5, -0.5, -1.1, -1.6, -2.5, -5.5]
#: The table of java.math.RoundingMode, whose names QONNX uses.
TABLE = {
    Rounding.HALF_EVEN: [6, 2, 2, 1, 0, 0, -1, -2, -2, -6],
    Rounding.CEIL: [6, 3, 2, 2, 1, 0, -1, -1, -2, -5],
    Rounding.FLOOR: [5, 2, 1, 1, 0, -1, -2, -2, -3, -6],
    Rounding.UP: [6, 3, 2, 2, 1, -1, -2, -2, -3, -6],
    Rounding.DOWN: [5, 2, 1, 1, 0, 0, -1, -1, -2, -5],
    Rounding.HALF_UP: [6, 3, 2, 1, 1, -1, -1, -2, -3, -6],
    Rounding.HALF_DOWN: [5, 2, 2, 1, 0, 0, -1, -2, -2, -5],
    Rounding.SIGN: [1, 1, 1, 1, 1, -1, -1, -1, -1, -1],
}


@pytest.mark.parametrize("rounding", Rounding)
def test_numpy_rounds_as_the_table_says(rounding):
    assert round_numpy(VALUES, rounding).tolist() == TABLE[rounding]


@pytest.mark.parametrize("rounding", Rounding)
def test_compiled_codes_are_those_of_numpy(rounding):
    near = np.float32([0.49999997, -0.49999997, 0, 2**-149, -(2**-149), 1e30, -np.inf])
    x = np.concatenate([np.float32(VALUES), near])
    for formula in Formula:
        spec = QuantSpec(bits=8, symmetric=False, rounding=rounding, formula=formula)
        codes = run_one(build(lambda _bb, x, s=spec: quantize(x, 1.0, 3, s), x=x.shape), x)
        np.testing.assert_array_equal(codes, quantize_numpy(x, 1.0, 3, spec))


def test_the_zero_point_is_rounded_with_the_value_in_qonnx_alone():
    x = np.float32([-2.5, 2.5])
    down = {"symmetric": False, "rounding": Rounding.DOWN}
    assert quantize_numpy(x, 1, 4, QuantSpec(**down)).tolist() == [2, 6]
    shifted = QuantSpec(**down, formula=Formula.SHIFT)
    assert quantize_numpy(x, 1, 4, shifted).tolist() == [1, 6]


def test_a_reciprocal_is_another_number_than_a_quotient():
    scale = np.float32(0.3)
    x = (np.arange(1, 200) - 0.5).astype("float32") * scale
    divided = quantize_numpy(x, scale, 0, QuantSpec(bits=16))
    multiplied = quantize_numpy(x, scale, 0, QuantSpec(bits=16, formula=Formula.RECIPROCAL))
    assert (divided != multiplied).any()
    np.testing.assert_array_equal(multiplied, np.round(x * (np.float32(1) / scale)))
