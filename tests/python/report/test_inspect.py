"""Showing the calibration table."""

import json

import pytest
from rich.console import Console

from small_networks import calibrated_network
from tvm_quant.artifact import QuantizerRow, calibration_table
from tvm_quant.errors import ConfigError
from tvm_quant.report import float_table, quantizer_table, select, to_json


def shown(table):
    console = Console(width=200)
    with console.capture() as capture:
        console.print(table)
    return [" ".join(line.split()) for line in capture.get().splitlines()]


def test_quantizers_are_shown_with_scale_zero_point_and_range():
    lines = shown(quantizer_table(calibration_table(calibrated_network())))
    assert lines[0] == "node op port tensor kind grid scale zero point range"
    assert lines[1] == "stem.conv conv2d 0 x input u8 per tensor 0.02 128 -2.56 .. 2.54"
    assert lines[2].startswith("1 constant weight s8 narrow sym per axis 0 0.00")
    assert len(lines) == 3


def test_quantizers_without_scale_say_so():
    row = QuantizerRow(node="a", op="relax.add", port=0, tensor="x", kind="input", grid="u8")
    assert shown(quantizer_table([row]))[1] == "a add 0 x input u8 not calibrated"


def test_calls_in_float_are_shown_with_their_reason():
    lines = shown(float_table(calibration_table(calibrated_network())))
    assert lines[1:] == ["head/softmax softmax no integer form"]


def test_rows_are_selected_by_pattern():
    rows = calibration_table(calibrated_network())
    assert [row.node for row in select(rows, ["stem.*"])] == ["stem.conv"] * 2
    assert [row.node for row in select(rows, ["relax.nn.relu", "mean"])] == ["relu", "mean"]
    assert select(rows, []) == rows
    with pytest.raises(
        ConfigError, match=r"pattern 'steam' matches no node; the nodes are stem\.conv"
    ):
        select(rows, ["steam"])


def test_json_holds_every_scale():
    rows = json.loads(to_json(calibration_table(calibrated_network())))
    assert len(rows[1]["scale"]) == 5
    assert rows[-1] == {
        "node": "head/softmax",
        "op": "relax.nn.softmax",
        "reason": "no integer form",
    }
