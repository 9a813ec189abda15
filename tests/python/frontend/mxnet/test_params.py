"""The binary format of `.params`, written here byte by byte."""

import contextlib
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxnet_models import OLDEST, V1, V2, V3, params_bytes
from tvm_quant.errors import FrontendError
from tvm_quant.frontend.mxnet.params import DTYPES, parse_params, read_params

ARRAYS = {
    "arg:weight": np.arange(6, dtype="float32").reshape(2, 3),
    "aux:mean": np.array([1.5], "float32"),
}


@pytest.mark.parametrize("magic", [OLDEST, V1, V2, V3])
def test_every_version_of_the_format_is_read(magic):
    found = parse_params(params_bytes(ARRAYS, magic))
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("dtype", DTYPES.values())
def test_every_type_is_read(dtype):
    array = np.array([[0, 1], [1, 0]], dtype)
    (found,) = parse_params(params_bytes({"x": array})).values()
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_rank_0_is_a_number_since_2_and_nothing_before():
    number = np.array(2.5, "float32")
    assert parse_params(params_bytes({"x": number}, V3))["x"] == 2.5
    nothing = struct.pack("<QQQIiI", 0x112, 0, 1, V2, 0, 0) + struct.pack("<QQ1s", 1, 1, b"x")
    assert parse_params(nothing)["x"].size == 0


def test_prefixes_of_checkpoints_go(tmp_path):
    path = tmp_path / "net-0000.params"
    path.write_bytes(params_bytes(ARRAYS))
    assert list(read_params(path)) == ["weight", "mean"]


def test_names_that_are_missing_are_refused():
    data = params_bytes(ARRAYS)
    unnamed = data[: -(8 + 8 + 10 + 8 + 8)] + struct.pack("<Q", 0)
    with pytest.raises(FrontendError, match="2 arrays and 0 names"):
        parse_params(unnamed)


def test_sparse_arrays_are_refused_with_the_way_out():
    with pytest.raises(FrontendError, match=r"Array 0 .*sparse.*tostype\('default'\)"):
        parse_params(params_bytes(ARRAYS, storage=1))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "ends after 0 bytes"),
        (b"PK\x03\x04" + b"\0" * 90, "holds no MXNet parameters"),
        (struct.pack("<QQQ", 0x112, 0, 1 << 60), "says that there are"),
        (struct.pack("<QQQIiI", 0x112, 0, 1, V2, 0, 99), "array 0 has 99 axes"),
        (struct.pack("<QQQIiIq", 0x112, 0, 1, V2, 0, 1, -3), r"array 0 has the shape \(-3,\)"),
        (struct.pack("<QQQIiIqiii", 0x112, 0, 1, V2, 0, 1, 1, 1, 0, 77), "type number 77"),
        (struct.pack("<QQQIiIqiii", 0x112, 0, 1, V2, 0, 1, 1 << 50, 1, 0, 0), "truncated"),
    ],
)
def test_damage_is_named(data, message):
    with pytest.raises(FrontendError, match=message):
        parse_params(data, "net.params")


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(FrontendError, match=r"Cannot read the parameters .*none\.params"):
        read_params(tmp_path / "none.params")


def test_a_file_cut_anywhere_is_refused():
    data = params_bytes(ARRAYS)
    for length in range(len(data)):
        with pytest.raises(FrontendError):
            parse_params(data[:length])


@given(st.integers(0, len(params_bytes(ARRAYS)) - 1), st.integers(0, 255))
def test_any_byte_may_be_wrong(position, value):
    data = bytearray(params_bytes(ARRAYS))
    data[position] = value
    with contextlib.suppress(FrontendError):  # anything else is a failure
        parse_params(bytes(data))
