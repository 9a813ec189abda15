"""The measurements as sub-commands; what they measure is tested in `tests/python/bench`."""

import pytest

from tvm_quant.bench.commands import COMMANDS


def test_help_lists_every_measurement(invoke):
    result = invoke("bench", "--help")
    assert result.exit_code == 0
    for name in COMMANDS:
        assert f" {name} " in result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_measurement_explains_itself(invoke, name):
    result = invoke("bench", name, "-h")
    assert result.exit_code == 0
    assert "--only" in result.stdout
    assert "--verbose" in result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_network_is_one_line_and_code_1(refused, name):
    refused("bench", name, "--only", "lenet*", message="no network matches")
