import re

import pytest

from tvm_quant.errors import ConfigError
from tvm_quant.hardware import HardwareConfig, OperandGrids, grids, hardware_row, read_row, row_of
from tvm_quant.op import RequantizeMode, Role

MINE = """\
name: mine
source: data sheet
operators:
  contraction: {data: 8SN 4SN, other: 8SN, weight: 8SCsn}
  nn.conv2d:depthwise: {data: 8SC}
  add: {data: 8AN}
  pointwise: float
  nn.max_pool2d: float
unified: [concat, add]
sums_on_accumulators: false
accumulator_bits: 24
requantize: shift
power_of_two_scales: true
largest_pair: 128
"""
WEIGHT = grids("8SCsn 8SNsn")


def test_a_file_becomes_a_row(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(MINE)
    same = OperandGrids(data=grids("8AN"), other=grids("8AN"), weight=WEIGHT)
    fine = OperandGrids(data=grids("8SC"), other=grids("8SC"), weight=WEIGHT)
    expected = HardwareConfig(
        name="mine",
        source="data sheet",
        roles={
            Role.CONTRACTION: OperandGrids(
                data=grids("8SN 4SN"), other=grids("8SN"), weight=grids("8SCsn")
            )
        },
        ops={"relax.nn.conv2d:depthwise": fine, "relax.add": same},
        float_ops=frozenset({"relax.nn.max_pool2d"}),
        unified=frozenset({"relax.concat", "relax.add"}),
        sums_on_accumulators=False,
        accumulator_bits=24,
        requantize=RequantizeMode.SHIFT,
        power_of_two_scales=True,
        largest_pair=128,
    )
    assert read_row(path) == hardware_row(str(path)) == expected


def test_what_only_moves_values_runs_unless_it_is_float():
    mine = row_of({"name": "mine", "operators": {"contraction": {"data": "8SN"}}})
    assert mine.runs("relax.reshape") and mine.runs("relax.concat")
    assert not mine.runs("relax.sigmoid")
    assert not row_of({"name": "mine", "operators": {"reshape": "float"}}).runs("relax.reshape")


VALID = {"name": "mine", "operators": {"sum": {"data": "8SN"}}}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"bits": 8}, "unknown field(s) ['bits']; valid fields are ['accumulator_bits', "),
        ({"name": None}, "name is None; expected the name of the row."),
        ({"source": 3}, "source is 3; expected text."),
        ({"operators": None}, "operators is None; expected a mapping of roles ['contraction', "),
        ({"operators": {}}, "operators is {}; expected a mapping of roles"),
        ({"operators": {"conv": {"data": "8SN"}}}, "operators names 'conv'; expected a role"),
        ({"operators": {"sum": "8SN"}}, "operators.sum is '8SN'; expected 'float' or a mapping"),
        ({"operators": {"sum": {"weight": "8SN"}}}, "operators.sum is {'weight': '8SN'}; expected"),
        ({"operators": {"sum": {"data": "8SN", "bias": "8SN"}}}, "operators.sum is {'data'"),
        ({"operators": {"sum": {"data": "8XN"}}}, "operators.sum.data: '8XN' is no grid; expected"),
        ({"operators": {"add": {"data": [8]}}}, "operators.add.data is [8]; expected grids such"),
        ({"unified": "concat"}, "unified is 'concat'; expected a list of operators."),
        ({"unified": ["conv"]}, "unified names 'conv'; expected a role"),
        ({"requantize": "round"}, "requantize is 'round'; expected one of ['float'"),
        ({"accumulator_bits": "32"}, "accumulator_bits is '32'; expected a whole number."),
        ({"power_of_two_scales": 1}, "power_of_two_scales is 1; expected true or false."),
    ],
)
def test_mistakes_are_named(values, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        row_of({**VALID, **values})


def test_a_list_is_no_row():
    with pytest.raises(ConfigError, match="expected `field: value` lines, not list"):
        row_of(["mine"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "Cannot read hardware row '{path}': No such file or directory."),
        ("a: [", "Hardware row '{path}' is no YAML:"),
        ("name: mine", "Hardware row '{path}': operators is None"),
    ],
)
def test_a_file_that_is_no_row_is_named(tmp_path, text, message):
    path = tmp_path / "mine.yml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(message.format(path=path))):
        hardware_row(str(path))
