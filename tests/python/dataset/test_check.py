"""Shapes and dtypes of one tensor."""

import numpy as np
import pytest

from tvm_quant.dataset.check import bad_samples, conform, is_batched, what_is_bad
from tvm_quant.errors import DatasetError
from tvm_quant.ir import TensorInfo


def info(shape=(None, 3), dtype="float32", name="x"):
    return TensorInfo(name=name, shape=shape, dtype=dtype)


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "uint8", "int16", "int64", "bool"]
)
def test_numbers_become_the_float_type_of_the_input(dtype):
    result = conform(np.ones((2, 3), dtype), info(), "batch 0", batched=True)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, np.ones((2, 3)))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "bool"])
def test_integers_become_the_integer_type_of_the_input(dtype):
    result = conform(np.ones((2, 3), dtype), info(dtype="int32"), "batch 0", batched=True)
    assert result.dtype == np.int32


def test_a_sample_without_batch_axis_gets_one():
    result = conform(np.zeros((3, 8, 8)), info((1, 3, 8, 8)), "batch 0", batched=True)
    assert result.shape == (1, 3, 8, 8)


def test_result_is_contiguous():
    transposed = np.zeros((3, 2), np.float32).T
    assert conform(transposed, info(), "batch 0", batched=True).flags.c_contiguous


@pytest.mark.parametrize(
    ("array", "target", "message"),
    [
        (np.zeros((2, 4)), info(), "b: input 'x' has shape (2, 4), but the model takes (?, 3)"),
        (np.zeros((2, 3, 1)), info(), "input 'x' has shape (2, 3, 1), but the model takes (?, 3)"),
        (
            np.zeros((2, 8, 8, 3)),
            info((None, 3, 8, 8)),
            "(?, 3, 8, 8). The channels are on another axis: transpose the data by (0, 3, 1, 2)",
        ),
        (
            np.zeros((2, 3, 8, 8)),
            info((None, 8, 8, 3)),
            "The channels are on another axis: transpose the data by (0, 2, 3, 1)",
        ),
        (
            np.zeros((2, 40, 50, 3), np.uint8),
            info((None, 3, 8, 8)),
            "These look like images: give a preprocessing spec",
        ),
        (np.zeros((0, 3)), info(), "input 'x' is empty, shape (0, 3)"),
        (np.zeros((2, 3), complex), info(), "dtype complex128, which holds no real numbers"),
        (
            np.array([["a", "b", "c"]]),
            info(),
            "which holds no real numbers; the model takes float32",
        ),
        (np.array([[None] * 3]), info(), "input 'x' has dtype object"),
        (
            np.zeros((2, 3), np.float32),
            info(dtype="int64", name="ids"),
            (
                "input 'ids' has dtype float32, but the model takes int64; values such as ids must "
                "be integers"
            ),
        ),
        (
            np.full((2, 3), 300),
            info(dtype="uint8"),
            "values from 300 to 300, beyond the range of uint8",
        ),
        (
            np.full((2, 3), -1),
            info(dtype="uint8"),
            "values from -1 to -1, beyond the range of uint8",
        ),
        (
            np.full((2, 3), 2**24 + 1),
            info(),
            "beyond what float32 holds exactly (largest 1.67772e+07)",
        ),
        (np.full((2, 3), 1e300), info(), "values too large for float32 (largest 1e+300)"),
        (np.zeros((2, 3), np.int8), info(dtype="bool"), "dtype int8, but the model takes bool"),
    ],
)
def test_a_tensor_that_does_not_fit_is_refused(array, target, message):
    with pytest.raises(DatasetError) as caught:
        conform(array, target, "b", batched=True)
    assert message in str(caught.value)


def test_without_a_batch_axis_the_first_dimension_must_match_too():
    with pytest.raises(DatasetError, match=r"shape \(5, 3\), but the model takes \(4, 3\)"):
        conform(np.zeros((5, 3)), info((4, 3)), "batch 0", batched=False)


def test_batch_axis_is_the_first_one_where_all_inputs_agree_on_it():
    assert is_batched([info((None, 3)), info((None,))])
    assert is_batched([info((4, 3)), info((4, 9))])
    assert not is_batched([info((None, 3)), info((10,))])
    assert not is_batched([info((1, 3)), info(())])


def test_rows_with_nan_or_inf_are_found():
    rows = np.zeros((4, 2, 2), np.float32)
    rows[1, 0, 1] = np.nan
    rows[3, 1, 1] = -np.inf
    assert bad_samples(rows).tolist() == [False, True, False, True]
    assert [what_is_bad(rows[1]), what_is_bad(rows[3])] == ["NaN", "Inf"]
    rows[3, 0, 0] = np.nan
    assert what_is_bad(rows[3]) == "NaN and Inf"
