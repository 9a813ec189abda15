import numpy as np
import pytest

from tvm_quant.errors import ConfigError, DatasetError
from tvm_quant.report import METRICS, metric

REFERENCE = [np.float32([[1, 0], [0, 1], [3, 2], [0, 5]])]
OUTPUTS = [np.float32([[1, 0], [0, 1], [2, 3], [0, 5]])]


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("top1", [0, 1, 1, 0], 75.0),
        ("top1", np.eye(2)[[0, 1, 0, 1]], 75.0),  # one-hot
        ("agreement", None, 75.0),
        ("sqnr", None, 10 * np.log10(40 / 2)),
    ],
)
def test_metrics_are_numbers_of_outputs(name, labels, expected):
    assert METRICS[name].score(REFERENCE, OUTPUTS, labels) == pytest.approx(expected)


def test_scores_may_have_spatial_axes_of_one():
    wide = [output[:, :, None, None] for output in OUTPUTS]
    assert METRICS["top1"].score(wide, wide, [0, 1, 1, 1]) == 100.0


def test_a_function_is_a_metric():
    def count(outputs, labels):
        return np.float32(len(outputs[0]) + labels)

    row = metric(count)
    assert (row.name, row.needs_labels) == ("count", False)
    assert row.score(REFERENCE, OUTPUTS, 2) == 6.0


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ConfigError, match=r"expected one of \['top1', 'agreement', 'sqnr'\] or"):
        metric("f1")


def test_outputs_without_classes_are_an_error():
    flat = [np.zeros((4, 1))]
    with pytest.raises(DatasetError, match="no table of scores"):
        METRICS["top1"].score(flat, flat, [0] * 4)
    with pytest.raises(DatasetError, match="no class numbers"):
        METRICS["top1"].score(OUTPUTS, OUTPUTS, [0.5] * 4)
