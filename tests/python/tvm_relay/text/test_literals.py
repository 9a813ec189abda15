import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_relay.text.literals import (
    read_number,
    read_scalar,
    read_string,
    write_number,
    write_scalar,
    write_string,
)

DTYPES = ("int16", "int32", "int64", "float16", "float32", "float64", "bool")


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_extremes_of_a_dtype_read_back(dtype):
    kind = np.dtype(dtype)
    if kind.kind == "b":
        values = [True, False]
    else:
        info = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
        values = [info.min, info.max, 0, 1]
    for value in values:
        data = np.array(value, dtype)
        literal = write_scalar(data)
        assert literal is not None
        read = read_scalar(literal)
        assert read.dtype == data.dtype and read == data


@given(st.floats(width=32, allow_nan=False))
def test_a_float32_reads_back_to_the_bit(value):
    data = np.float32(value)
    assert read_scalar(write_scalar(np.asarray(data))).tobytes() == data.tobytes()


@given(st.one_of(st.floats(allow_nan=False), st.booleans(), st.integers(-(2**63), 2**63 - 1)))
def test_an_attribute_reads_back(value):
    read = read_number(write_number(value))
    assert read == value and isinstance(read, type(value))


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_string_reads_back(value):
    literal = write_string(value)
    assert literal.isascii() and "\n" not in literal
    assert read_string(literal) == value


@pytest.mark.parametrize(
    "data",
    [
        np.float32("nan"),
        np.float64("inf"),
        np.int8(3),
        np.uint8(3),
        np.zeros(1, np.float32),
        np.zeros((1, 1), np.int32),
    ],
)
def test_what_has_no_literal_goes_to_the_metadata(data):
    assert write_scalar(np.asarray(data)) is None
