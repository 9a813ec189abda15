"""Reading what stands on the command line."""

import pytest

from tvm_quant.cli.options import parse_settings, parse_shapes
from tvm_quant.errors import ConfigError


def test_shapes_are_read():
    assert parse_shapes([]) is None
    assert parse_shapes(["data=1,3,224,224", "a=b=2x3"]) == {
        "data": (1, 3, 224, 224),
        "a=b": (2, 3),
    }


@pytest.mark.parametrize("text", ["1,3", "=1", "data=", "data=1,n", "data=0,3", "data=-1"])
def test_a_wrong_shape_is_refused(text):
    with pytest.raises(ConfigError, match=f"--shape is '{text}'; expected NAME=1,3,224,224"):
        parse_shapes([text])


def test_settings_are_read_as_yaml():
    texts = ["nbit_activation=16", "per_channel=no", "skip=[a, b]", "requantize=shift"]
    assert parse_settings(texts) == {
        "nbit_activation": 16,
        "per_channel": False,
        "skip": ["a", "b"],
        "requantize": "shift",
    }


@pytest.mark.parametrize("text", ["nbit_activation", "=3"])
def test_a_wrong_setting_is_refused(text):
    with pytest.raises(ConfigError, match=f"--set is '{text}'; expected FIELD=VALUE"):
        parse_settings([text])


def test_a_setting_that_is_no_yaml_is_refused():
    with pytest.raises(ConfigError, match="the value is no YAML"):
        parse_settings(["skip=[a"])
