"""The calibration table."""

import numpy as np
import pytest

from small_networks import calibrated_network
from tvm_quant.artifact import QuantizerRow, calibration_table


def test_every_port_and_every_float_call_has_its_row():
    data, weight, relu, mean, softmax = calibration_table(calibrated_network())
    assert (data.node, data.op, data.port, data.tensor, data.kind, data.grid) == (
        "stem.conv",
        "relax.nn.conv2d",
        0,
        "x",
        "input",
        "u8 per tensor",
    )
    assert data.scale == [pytest.approx(0.02)]
    assert data.zero_point == [128]
    assert (data.low, data.high) == (pytest.approx(-2.56), pytest.approx(2.54))
    assert (weight.port, weight.tensor, weight.kind) == (1, "constant", "weight")
    assert weight.grid == "s8 narrow sym per axis 0"
    assert len(weight.scale) == len(weight.zero_point) == 5
    assert weight.high == pytest.approx(127 * max(weight.scale))
    assert (relu.node, relu.port, relu.reason) == ("relu", None, None)
    assert (mean.node, mean.reason) == ("mean", None)
    assert (softmax.node, softmax.reason) == ("head/softmax", "no integer form")


def test_rows_survive_json():
    for row in calibration_table(calibrated_network()):
        assert QuantizerRow.from_dict(row.to_dict()) == row
        assert None not in row.to_dict().values()


def test_numbers_are_those_of_python():
    row = calibration_table(calibrated_network())[1]
    assert type(row.scale[0]) is float
    assert type(row.low) is float
    assert not isinstance(row.zero_point[0], np.integer)
