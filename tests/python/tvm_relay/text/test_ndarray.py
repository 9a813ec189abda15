import contextlib
import struct

import ml_dtypes
import numpy as np
import pytest

from tvm_quant.errors import FrontendError
from tvm_relay.text import load_param_dict, save_param_dict
from tvm_relay.text.ndarray import read_tensor, write_tensor

ARRAYS = [
    np.arange(6).reshape(2, 3).astype(dtype)
    for dtype in (
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "bool", ml_dtypes.bfloat16),
    )
] + [np.float32(2.5), np.zeros((0, 3), "float32"), np.arange(6).reshape(2, 3).T]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}{a.shape}")
def test_a_tensor_reads_back(array):
    read = read_tensor(write_tensor(np.asarray(array)))
    assert read.dtype == array.dtype and read.shape == array.shape
    assert read.tobytes() == np.ascontiguousarray(array).tobytes()


def test_the_bytes_are_those_of_tvm():
    # float32 [1, 2] as TVM 0.16 saved it.
    saved = (
        "3fa1b496f0405edd0000000000000000010000000000000001000000022001000200000000000000"
        "08000000000000000000803f00000040"
    )
    assert write_tensor(np.float32([1, 2])).hex() == saved
    np.testing.assert_array_equal(read_tensor(bytes.fromhex(saved)), np.float32([1, 2]))


def test_parameters_read_back_in_order():
    params = {"w": np.float32([[1, 2]]), "": np.int8(3), "é.0": np.zeros((2, 0))}
    read = load_param_dict(save_param_dict(params))
    assert list(read) == list(params)
    for name, value in params.items():
        np.testing.assert_array_equal(read[name], value)


def test_a_file_cut_short_anywhere_is_refused():
    data = save_param_dict({"weight": np.float32([1, 2, 3]), "bias": np.int32([4])})
    for end in range(len(data)):
        with pytest.raises(FrontendError, match="parameter file"):
            load_param_dict(data[:end])


def test_a_damaged_file_gives_only_our_error():
    data = bytearray(save_param_dict({"weight": np.float32([1, 2, 3])}))
    for place in range(len(data)):
        for value in (0, 1, 0x7F, 0xFF):
            changed = bytes(data[:place]) + bytes([value]) + bytes(data[place + 1 :])
            with contextlib.suppress(FrontendError):
                load_param_dict(changed)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PK\3\4" + bytes(40), "expected 0xf7e58d4f05049cb7"),
        (b"", "cut short"),
        (
            struct.pack("<QQQ", 0xF7E58D4F05049CB7, 0, 2**60),
            "1152921504606846976 entries",
        ),
        (struct.pack("<QQQQ", 0xF7E58D4F05049CB7, 0, 0, 0), None),
    ],
)
def test_files_that_are_no_parameters_are_refused(data, message):
    if message is None:
        assert load_param_dict(data) == {}
        return
    with pytest.raises(FrontendError, match=message):
        load_param_dict(data)


def test_a_dtype_that_relay_does_not_have_is_refused():
    with pytest.raises(FrontendError, match="complex64 cannot be written"):
        write_tensor(np.zeros(2, np.complex64))
