"""Signal to quantization noise ratio."""

import math

import numpy as np
import pytest

from tvm_quant.errors import DatasetError
from tvm_quant.report import SqnrMeter, sqnr_db


def test_one_part_in_ten_is_20_db():
    assert sqnr_db(np.full(8, 10.0), np.full(8, 9.0)) == pytest.approx(20)


def test_limits():
    ones, zeros = np.ones(3), np.zeros(3)
    assert sqnr_db(ones, ones) == math.inf
    assert sqnr_db(zeros, zeros) == math.inf
    assert sqnr_db(zeros, ones) == -math.inf
    assert math.isnan(sqnr_db(ones, np.full(3, np.nan)))


def test_a_meter_over_parts_equals_the_whole():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 40))
    meter = SqnrMeter()
    meter.add(a[:15], b[:15])
    meter.add(a[15:], b[15:])
    assert meter.db == pytest.approx(sqnr_db(a, b), abs=1e-9)


def test_integers_do_not_overflow():
    assert sqnr_db(np.full(2, 200, np.uint8), np.full(2, 220, np.uint8)) == pytest.approx(20)


def test_different_shapes_are_refused():
    with pytest.raises(DatasetError, match=r"reference has shape \(2,\), the other array \(1, 2\)"):
        sqnr_db(np.ones(2), np.ones((1, 2)))
