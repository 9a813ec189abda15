import re

import pytest

from tvm_quant.errors import ConfigError
from tvm_quant.op import QuantSpec


@pytest.mark.parametrize(
    ("fields", "qmin", "qmax", "dtype"),
    [
        ({}, -128, 127, "int8"),
        ({"narrow": True}, -127, 127, "int8"),
        ({"signed": False}, 0, 255, "uint8"),
        ({"bits": 4}, -8, 7, "int8"),
        ({"bits": 1, "signed": False}, 0, 1, "uint8"),
        ({"bits": 1}, -1, 0, "int8"),
        ({"bits": 9}, -256, 255, "int16"),
        ({"bits": 16, "signed": False}, 0, 65535, "uint16"),
        ({"bits": 32}, -(2**31), 2**31 - 1, "int32"),
    ],
)
def test_a_grid_has_these_codes(fields, qmin, qmax, dtype):
    spec = QuantSpec(**fields)
    assert (spec.qmin, spec.qmax, spec.dtype) == (qmin, qmax, dtype)
    assert spec.levels == qmax - qmin + 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"bits": 0}, "QuantSpec.bits is 0; expected 1 to 32."),
        ({"bits": 33}, "QuantSpec.bits is 33; expected 1 to 32."),
        ({"signed": False, "narrow": True}, "a narrow range only exists for signed grids"),
        ({"bits": 1, "narrow": True}, "a 1-bit grid has no code to drop"),
    ],
)
def test_a_grid_that_cannot_be_is_refused(fields, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        QuantSpec(**fields)


@pytest.mark.parametrize(
    "spec",
    [
        QuantSpec(),
        QuantSpec(bits=3, narrow=True, axis=0),
        QuantSpec(bits=16, signed=False, symmetric=False, axis=1, groups=4),
    ],
)
def test_attributes_hold_the_whole_grid(spec):
    assert QuantSpec.from_attrs(spec.to_attrs()) == spec


def test_per_tensor_drops_the_channels():
    spec = QuantSpec(bits=4, axis=1, groups=2)
    assert spec.per_tensor() == QuantSpec(bits=4)


def test_a_grid_prints_in_short():
    assert str(QuantSpec(narrow=True, axis=0)) == "s8 narrow sym per axis 0"
    assert str(QuantSpec(signed=False, symmetric=False)) == "u8 per tensor"
