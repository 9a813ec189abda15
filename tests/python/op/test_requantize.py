import pickle
from fractions import Fraction

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from plain_tvm import build, run_one
from tvm_quant.errors import CalibrationError
from tvm_quant.op import RequantizeMode, is_requantize, requantize, requantize_numpy
from tvm_quant.op.requantize import fixed_point_multiplier

MODES = list(RequantizeMode)
U8 = {"dtype": "uint8", "qmin": 0, "qmax": 255}
S16 = {"dtype": "int16", "qmin": -32767, "qmax": 32767}


# The oracle: Python integers of any length, fractions, and nothing of the code under test --------


def exact(acc: int, multiplier: float, zero_point: int, mode: RequantizeMode, grid: dict) -> int:
    steps = {
        RequantizeMode.FLOAT: exact_float,
        RequantizeMode.FIXED_POINT: exact_fixed_point,
        RequantizeMode.RUY: exact_ruy,
        RequantizeMode.HALF_UP: exact_half_up,
        RequantizeMode.HALF_AWAY: exact_half_away,
        RequantizeMode.SHIFT: exact_shift,
    }[mode](acc, multiplier)
    return min(max(steps + zero_point, grid["qmin"]), grid["qmax"])


def exact_float(acc: int, multiplier: float) -> int:
    product = Fraction(to_float32(Fraction(acc))) * Fraction(float(np.float32(multiplier)))
    return round(Fraction(to_float32(product)))


def exact_fixed_point(acc: int, multiplier: float) -> int:
    mantissa, left, right = q31(multiplier)
    high = ((acc << left) * mantissa + (1 << 30)) >> 31
    magnitude = (2 * abs(high) + (1 << right)) >> (right + 1)
    return magnitude if high >= 0 else -magnitude


def exact_ruy(acc: int, multiplier: float) -> int:
    mantissa, left, right = q31(multiplier)
    high = ((acc << left) * mantissa + (1 << 30)) >> 31
    return (Fraction(high, 1 << right) + Fraction(1, 2)).__floor__()


def exact_half_up(acc: int, multiplier: float) -> int:
    mantissa, left, right = q31(multiplier)
    return (Fraction((acc << left) * mantissa, 1 << (31 + right)) + Fraction(1, 2)).__floor__()


def exact_half_away(acc: int, multiplier: float) -> int:
    magnitude = exact_half_up(abs(acc), multiplier)
    return magnitude if acc >= 0 else -magnitude


def q31(multiplier: float) -> tuple[int, int, int]:
    exponent = 0
    fraction = Fraction(multiplier)
    while fraction >= 1:
        fraction, exponent = fraction / 2, exponent + 1
    while fraction < Fraction(1, 2):
        fraction, exponent = fraction * 2, exponent - 1
    mantissa = (fraction * 2**31 + Fraction(1, 2)).__floor__()
    return mantissa, max(exponent, 0), max(-exponent, 0)


# Printed in the documentation of the formats: a quarter of each.
@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (RequantizeMode.FIXED_POINT, [1, 2, 3, -1, -2, -3, 1, 1, 0, -1]),
        (RequantizeMode.RUY, [1, 2, 3, 0, -1, -2, 1, 1, 0, 0]),
        (RequantizeMode.HALF_UP, [1, 2, 3, 0, -1, -2, 0, 1, 0, -1]),
        (RequantizeMode.HALF_AWAY, [1, 2, 3, -1, -2, -3, 0, 1, 0, -1]),
        (RequantizeMode.FLOAT, [0, 2, 2, 0, -2, -2, 0, 1, 0, -1]),
    ],
)
def test_a_quarter_of_small_numbers(mode, expected):
    acc = [2, 6, 10, -2, -6, -10, 1, 3, -1, -3]
    assert requantize_numpy(acc, 0.25, 0, mode=mode, **S16).tolist() == expected


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (RequantizeMode.FIXED_POINT, -290),
        (RequantizeMode.RUY, -289),
        (RequantizeMode.HALF_UP, -289),
        (RequantizeMode.HALF_AWAY, -289),
        (RequantizeMode.FLOAT, -289),
    ],
)
def test_two_roundings_move_a_sum_that_is_just_below_a_tie(mode, expected):
    code = requantize_numpy(-39945, 0.0072474273418460, 0, mode=mode, **S16)
    assert int(code) == expected


def exact_shift(acc: int, multiplier: float) -> int:
    scaled = Fraction(acc) * Fraction(multiplier)
    return (scaled + Fraction(1, 2)).__floor__()


def to_float32(value: Fraction) -> float:
    """To nearest, ties to even, with 24 bits."""
    if value == 0:
        return 0.0
    exponent = 0
    magnitude = abs(value)
    while magnitude >= 2**24:
        magnitude, exponent = magnitude / 2, exponent + 1
    while magnitude < 2**23:
        magnitude, exponent = magnitude * 2, exponent - 1
    rounded = float(round(magnitude) * Fraction(2) ** exponent)
    return rounded if value > 0 else -rounded


def power_of_two(multiplier: float) -> float:
    return 2.0 ** round(np.log2(multiplier))


accumulators = st.integers(-(2**31), 2**31 - 1) | st.integers(-(2**46), 2**46) | st.just(0)
multipliers = st.floats(2**-40, 2**20) | st.sampled_from([0.5, 1.0, 2.0, 2**-10, 1 - 2**-40])


@given(
    acc=st.lists(accumulators, min_size=1, max_size=20),
    multiplier=multipliers,
    zero_point=st.integers(0, 255),
    mode=st.sampled_from(MODES),
    grid=st.sampled_from([U8, S16, {"dtype": "int8", "qmin": 3, "qmax": 17}]),
)
@settings(deadline=None, max_examples=300)
def test_the_reference_equals_exact_arithmetic(acc, multiplier, zero_point, mode, grid):
    if mode is RequantizeMode.SHIFT:
        multiplier = power_of_two(multiplier)
    result = requantize_numpy(np.array(acc, "int64"), multiplier, zero_point, mode=mode, **grid)
    assert result.dtype == grid["dtype"]
    assert result.tolist() == [exact(a, multiplier, zero_point, mode, grid) for a in acc]


# The lowering against the reference --------------------------------------------------------------


def module(shape, wide, multiplier, zero_point, **attrs):
    return build(
        lambda _bb, acc: requantize(acc, multiplier, zero_point, **attrs), acc=(wide, *shape)
    )


def spread(shape, dtype):
    """Values of every magnitude, and ties."""
    rng = np.random.default_rng(0)
    bits = rng.integers(1, 46 if dtype == "int64" else 31, shape)
    values = rng.integers(-(2**46), 2**46, shape) % (np.int64(1) << bits)
    values = (values * rng.choice([-1, 1], shape)).astype(dtype)
    values.flat[:8] = [0, 1, -1, 2, -2, 3, -3, 64]
    values.flat[8:10] = [np.iinfo("int32").max, np.iinfo("int32").min]
    return values


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_the_lowering_equals_the_reference(mode, dtype):
    acc = spread((4, 500, 3), dtype)
    scale = 2.0 ** np.array([-30, -17, -1, 0, 3])
    if mode is not RequantizeMode.SHIFT:
        scale = scale * np.array([1.0, 1.1, 1.0, 0.9, 1.7])
    scale = np.resize(scale, (1, 500, 1))
    zero_point = np.resize([0, 128, 255], (1, 500, 1))
    for grid in (U8, S16):
        mod = module(acc.shape, dtype, scale, zero_point, mode=mode, **grid)
        expected = requantize_numpy(acc, scale, zero_point, mode=mode, **grid)
        assert len(np.unique(expected)) > 50
        np.testing.assert_array_equal(run_one(mod, acc), expected)


@pytest.mark.parametrize("mode", MODES)
def test_one_multiplier_serves_the_whole_tensor(mode):
    acc = spread((7, 5), "int32")
    mod = module(acc.shape, "int32", 2.0**-20, 128, mode=mode, **U8)
    expected = requantize_numpy(acc, 2.0**-20, 128, mode=mode, **U8)
    np.testing.assert_array_equal(run_one(mod, acc), expected)


@pytest.mark.parametrize(
    ("mode", "ties"),
    [
        (RequantizeMode.FLOAT, [-2, -2, 0, 0, 2, 2]),
        (RequantizeMode.FIXED_POINT, [-2, -1, 0, 1, 2, 3]),
        (RequantizeMode.SHIFT, [-2, -1, 0, 1, 2, 3]),
    ],
)
def test_ties_are_rounded_as_documented(mode, ties):
    acc = np.array([-5, -3, -1, 1, 3, 5], "int32")
    grid = {"dtype": "int8", "qmin": -128, "qmax": 127}
    assert requantize_numpy(acc, 0.5, 0, mode=mode, **grid).tolist() == ties
    assert run_one(module(acc.shape, "int32", 0.5, 0, mode=mode, **grid), acc).tolist() == ties


def test_fixed_point_rounds_ties_of_the_shift_away_from_zero():
    grid = {"dtype": "int8", "qmin": -128, "qmax": 127}
    acc = np.array([-6, -2, 2, 6], "int32")
    result = requantize_numpy(acc, 0.25, 0, mode=RequantizeMode.FIXED_POINT, **grid)
    assert result.tolist() == [-2, -1, 1, 2]


@given(
    acc=st.integers(-(2**31), 2**31 - 1),
    multiplier=st.floats(2**-31, 1.0),
    zero_point=st.integers(0, 255),
)
@settings(deadline=None)
def test_fixed_point_and_float_differ_by_one_step_at_most(acc, multiplier, zero_point):
    fixed, floating = (
        int(requantize_numpy(acc, multiplier, zero_point, mode=mode, **U8))
        for mode in (RequantizeMode.FIXED_POINT, RequantizeMode.FLOAT)
    )
    assert abs(fixed - floating) <= 1


@given(multiplier=st.floats(2**-31, 2**30))
def test_a_fixed_point_multiplier_is_exact_to_31_bits(multiplier):
    mantissa, shift = (int(part) for part in fixed_point_multiplier(multiplier))
    assert 2**30 <= mantissa < 2**31
    error = Fraction(mantissa) * Fraction(2) ** (shift - 31) - Fraction(multiplier)
    assert abs(error) <= Fraction(multiplier) / 2**31


@pytest.mark.parametrize("multiplier", [0.0, -1.0, np.nan, np.inf, [1.0, 0.0]])
@pytest.mark.parametrize("mode", MODES)
def test_a_multiplier_that_is_no_positive_number_is_refused(multiplier, mode):
    acc = relax.Var("acc", relax.TensorType((2,), "int32"))
    with pytest.raises(CalibrationError, match=r"the multiplier holds .*; expected positive"):
        requantize(acc, multiplier, 0, mode=mode, **U8)


@pytest.mark.parametrize(
    "copy",
    [
        lambda mod: tvm.ir.load_json(tvm.ir.save_json(mod)),
        lambda mod: pickle.loads(pickle.dumps(mod)),
    ],
    ids=["json", "pickle"],
)
@pytest.mark.parametrize("mode", MODES)
def test_modules_survive_being_stored(copy, mode):
    mod = module((3, 2), "int32", [[0.5, 0.25]], [[3, 4]], mode=mode, **U8)
    loaded = copy(mod)
    tvm.ir.assert_structural_equal(loaded, mod)
    acc = np.arange(6, dtype="int32").reshape(3, 2)
    np.testing.assert_array_equal(run_one(loaded, acc), run_one(mod, acc))


def test_the_result_has_the_shape_of_the_data_and_the_type_asked_for():
    batch = tvm.tirx.Var("n", "int64")
    mod = module((batch, 3), "int32", 0.5, 0, **U8)
    result = mod["main"].ret_ty
    tvm.ir.assert_structural_equal(result.shape.values[1], tvm.tirx.IntImm("int64", 3))
    assert str(result.dtype) == "uint8"
    acc = np.array([[10, 11, 600]] * 2, "int32")
    assert run_one(mod, acc).tolist() == [[5, 6, 255]] * 2


def test_other_calls_are_not_taken_for_requantize():
    acc = relax.Var("acc", relax.TensorType((2,), "int32"))
    assert is_requantize(requantize(acc, 0.5, 0, **U8))
    assert not is_requantize(relax.op.negative(acc))
