import pickle

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tvm import relax

from plain_tvm import build, run_one
from tvm_quant.op import (
    NO_GROUP,
    Kind,
    QuantSpec,
    calibrated,
    group_of,
    is_calibrated,
    is_simulated,
    kind_of,
    quantize_numpy,
    scale_of,
    simulated_quantize,
    simulated_quantize_numpy,
    spec_of,
)

U8 = QuantSpec(signed=False, symmetric=False)
S8 = QuantSpec(narrow=True)


def quantizer(shape, scale=None, zero_point=None, **attrs):
    return build(
        lambda _bb, x: simulated_quantize(x, scale, zero_point, kind=Kind.ACTIVATION, **attrs),
        x=shape,
    )


def data(shape, seed=0):
    return np.random.default_rng(seed).normal(0, 4, shape).astype("float32")


PER_CHANNEL = np.array([0.05, 0.3, 1.0], "float32").reshape(1, 3, 1)
# I = 4 in two groups of two, O / groups = 3: six output channels.
PER_BLOCK = np.repeat(np.linspace(0.05, 0.3, 6, dtype="float32").reshape(2, 3, 1), 2, axis=0)


@pytest.mark.parametrize(
    ("shape", "scale", "zero_point", "spec"),
    [
        ((2, 3, 5), 0.1, 117, U8),
        ((2, 3, 5), 0.1, 0, S8),
        ((), 0.1, 3, U8),
        ((0, 3), 0.1, 3, U8),
        ((2, 3, 5), PER_CHANNEL, np.array([0, 9, 255]).reshape(1, 3, 1), U8),
        ((4, 3, 5), PER_BLOCK, 0, QuantSpec(narrow=True, axis=1, groups=2)),
        ((2, 3, 5), 0.001, 300, QuantSpec(bits=16, signed=False, symmetric=False)),
        ((2, 3, 5), 1.0, 0, QuantSpec(bits=2, narrow=True)),
        ((2, 3, 5), 1.0, 0, QuantSpec(bits=1, signed=False)),
    ],
)
def test_a_calibrated_call_rounds_as_the_numpy_reference(shape, scale, zero_point, spec):
    x = data(shape)
    result = run_one(quantizer(shape, scale, zero_point, spec=spec), x)
    expected = simulated_quantize_numpy(x, scale, zero_point, spec)
    assert expected.dtype == np.float32
    np.testing.assert_array_equal(result, expected)


def test_ties_go_to_the_even_code():
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], "float32")
    np.testing.assert_array_equal(quantize_numpy(x, 1.0, 0, S8), [-2, -2, 0, 0, 2, 2])
    np.testing.assert_array_equal(
        run_one(quantizer(x.shape, 1.0, 0, spec=S8), x), [-2, -2, 0, 0, 2, 2]
    )


def test_an_uncalibrated_call_is_the_identity():
    x = np.array([1e-30, -7.123, np.inf, 1e30], "float32")
    np.testing.assert_array_equal(run_one(quantizer(x.shape, spec=U8), x), x)


def test_zero_is_kept_exactly():
    x = np.zeros((3,), "float32")
    assert not run_one(quantizer(x.shape, 0.0371, 77, spec=U8), x).any()


def test_codes_come_in_the_storage_type_of_the_grid():
    assert quantize_numpy([1e9, -1e9], 0.5, 3, U8).tolist() == [255, 0]
    assert quantize_numpy([1e9, -1e9], 0.5, 0, S8).tolist() == [127, -127]
    assert quantize_numpy([0.3], 0.1, 0, QuantSpec(bits=12)).dtype == np.int16


@given(
    x=arrays.arrays("float32", 7, elements=st.floats(-1e4, 1e4, width=32)),
    scale=st.floats(2**-20, 2**10, width=32),
    zero_point=st.integers(0, 255),
)
def test_the_error_is_half_a_step_inside_the_range(x, scale, zero_point):
    low, high = (0 - zero_point) * scale, (255 - zero_point) * scale
    error = np.abs(simulated_quantize_numpy(x, scale, zero_point, U8) - np.clip(x, low, high))
    assert (error <= 0.5 * scale * (1 + 1e-3) + 1e-6 * np.abs(x)).all()


def test_attributes_and_scale_can_be_read_back():
    spec = QuantSpec(bits=5, narrow=True, axis=1, groups=2)
    x = relax.Var("x", relax.TensorType((4, 3, 5), "float32"))
    call = simulated_quantize(x, spec=spec, kind=Kind.WEIGHT, group=3)
    assert is_simulated(call)
    assert not is_calibrated(call)
    assert (spec_of(call), kind_of(call), group_of(call)) == (spec, Kind.WEIGHT, 3)

    filled = calibrated(call, PER_BLOCK, 0)
    assert is_calibrated(filled)
    assert (spec_of(filled), kind_of(filled), group_of(filled)) == (spec, Kind.WEIGHT, 3)
    scale, zero_point = scale_of(filled)
    np.testing.assert_array_equal(scale, PER_BLOCK)
    np.testing.assert_array_equal(zero_point, np.zeros_like(PER_BLOCK, "int32"))
    assert (scale.dtype, zero_point.dtype) == (np.float32, np.int32)


def test_a_call_has_no_group_unless_given_one():
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    assert group_of(simulated_quantize(x, spec=U8, kind=Kind.INPUT)) == NO_GROUP


def test_other_calls_are_not_taken_for_quantizers():
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    assert not is_simulated(relax.op.nn.relu(x))
    assert not is_simulated(x)


@pytest.mark.parametrize(
    "copy",
    [
        lambda mod: tvm.ir.load_json(tvm.ir.save_json(mod)),
        lambda mod: pickle.loads(pickle.dumps(mod)),
    ],
    ids=["json", "pickle"],
)
@pytest.mark.parametrize("scale", [None, PER_CHANNEL], ids=["uncalibrated", "calibrated"])
def test_modules_survive_being_stored(copy, scale):
    mod = quantizer((2, 3, 5), scale, spec=QuantSpec(signed=False, symmetric=False, axis=1))
    loaded = copy(mod)
    tvm.ir.assert_structural_equal(loaded, mod)
    x = data((2, 3, 5))
    np.testing.assert_array_equal(run_one(loaded, x), run_one(mod, x))


def test_a_symbolic_batch_runs_with_any_size():
    batch = tvm.tirx.Var("n", "int64")
    mod = quantizer((batch, 3), 0.1, 100, spec=U8)
    for size in (1, 4):
        x = data((size, 3))
        np.testing.assert_array_equal(run_one(mod, x), simulated_quantize_numpy(x, 0.1, 100, U8))
