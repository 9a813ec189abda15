"""Decoding, suppression and average precision, against cases done by hand."""

import numpy as np
import pytest

from tvm_quant.bench.detection import (
    average_precision,
    decode_fastestdet,
    mean_average_precision,
    without_duplicates,
)


def box(kind, x0, y0, x1, y1, score=None):
    return ([] if score is None else [score]) + [kind, x0, y0, x1, y1]


TRUTH = [
    np.array([box(0, 0.0, 0.0, 0.2, 0.2), box(0, 0.5, 0.5, 0.7, 0.7)]),
    np.array([box(0, 0.0, 0.0, 0.4, 0.4), box(3, 0.6, 0.6, 0.8, 0.8)]),
]


def found(*images):
    return [np.array(boxes, float).reshape(-1, 6) for boxes in images]


def test_boxes_as_drawn_have_average_precision_one():
    exact = found(
        [box(0, 0.0, 0.0, 0.2, 0.2, 0.9), box(0, 0.5, 0.5, 0.7, 0.7, 0.8)],
        [box(0, 0.0, 0.0, 0.4, 0.4, 0.7), box(3, 0.6, 0.6, 0.8, 0.8, 0.6)],
    )
    assert mean_average_precision(exact, TRUTH) == 1.0


def test_a_wrong_box_between_right_ones_costs_what_the_envelope_says():
    # By score: right, wrong, right; three true boxes. The envelope is 1 up to a recall of 1/3 (34
    # of COCO's 101 levels), 2/3 up to 2/3 (33 more), and 0 beyond.
    some = found(
        [box(0, 0.0, 0.0, 0.2, 0.2, 0.9), box(0, 0.8, 0.0, 0.9, 0.1, 0.8)],
        [box(0, 0.0, 0.0, 0.4, 0.4, 0.7)],
    )
    assert average_precision(some, TRUTH, 0) == pytest.approx((34 + 33 * 2 / 3) / 101)


def test_a_second_box_on_the_same_object_is_wrong():
    twice = found(
        [box(0, 0.0, 0.0, 0.2, 0.2, 0.9), box(0, 0.0, 0.0, 0.2, 0.2, 0.8)],
        [box(0, 0.0, 0.0, 0.4, 0.4, 0.7)],
    )
    assert average_precision(twice, TRUTH, 0) == pytest.approx((34 + 33 * 2 / 3) / 101)


def test_a_box_that_overlaps_less_than_half_is_wrong():
    off = found([box(0, 0.1, 0.0, 0.3, 0.2, 0.9)], [])
    assert average_precision(off, TRUTH, 0) == 0.0


def test_classes_that_only_the_network_sees_do_not_count():
    alien = found([box(7, 0.0, 0.0, 0.2, 0.2, 0.9)], [box(3, 0.6, 0.6, 0.8, 0.8, 0.6)])
    assert mean_average_precision(alien, TRUTH) == pytest.approx((0 + 1) / 2)


def test_suppression_keeps_the_best_box_of_each_class():
    boxes = np.array(
        [
            box(0, 0.0, 0.0, 0.4, 0.4, 0.9),
            box(0, 0.0, 0.0, 0.4, 0.3, 0.8),
            box(1, 0.0, 0.0, 0.4, 0.4, 0.7),
            box(0, 0.3, 0.3, 0.7, 0.7, 0.6),
        ]
    )
    assert without_duplicates(boxes)[:, 0].tolist() == [0.9, 0.7, 0.6]


def test_fastestdet_puts_a_box_where_its_cell_says():
    output = np.zeros((85, 2, 4), np.float32)
    output[0, 1, 2] = 0.25  # objectness at row 1, column 2
    output[5 + 17, 1, 2] = 0.5
    output[1, 1, 2] = np.arctanh(0.5)  # half a cell to the right
    output[3, 1, 2] = -np.log(4 - 1)  # sigmoid gives a width of 1/4
    (boxes,) = decode_fastestdet(output)
    score, kind, *corners = boxes
    assert score == pytest.approx(0.25**0.6 * 0.5**0.4)
    assert kind == 17
    expected = [2.5 / 4 - 1 / 8, 1 / 2 - 1 / 4, 2.5 / 4 + 1 / 8, 1 / 2 + 1 / 4]
    np.testing.assert_allclose(corners, expected, rtol=1e-6)


def test_nothing_found_is_no_error():
    nothing = decode_fastestdet(np.zeros((85, 2, 2), np.float32))
    assert nothing.shape == (0, 6)
    assert mean_average_precision([nothing, nothing], TRUTH) == 0.0
