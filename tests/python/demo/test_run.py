import io
import re

import pytest
from rich.console import Console

from tvm_quant.demo.run import DemoResult, run_demo
from tvm_quant.errors import ConfigError


@pytest.fixture(scope="module")
def shown() -> tuple[DemoResult, str]:
    """The demo with a quarter of its evaluation images, and what it printed."""
    stream = io.StringIO()
    result = run_demo(Console(file=stream, width=100), evaluation_samples=150)
    return result, stream.getvalue()


def test_int8_reads_digits_as_well_as_float(shown):
    found = shown[0].evaluation
    assert found.samples == 150
    assert found.top1_float > 0.97
    assert found.top1_int8 >= found.top1_float - 1 / 150
    assert found.agreement >= 149 / 150
    assert found.output_sqnr_db[0] > 34


def test_int8_weights_take_less_than_a_third(shown):
    result, _ = shown
    assert result.float32.size_bytes > 3 * result.int8.size_bytes > 0


def test_the_report_shows_float_beside_int8_and_where_to_go_next(shown):
    result, text = shown
    assert "calibrated on 256 samples" in text
    assert "compared on 150 others" in text
    accuracies = re.search(r"top-1 +([\d.]+)% +([\d.]+)%", text)
    assert accuracies is not None
    assert float(accuracies[1]) == pytest.approx(100 * result.evaluation.top1_float, abs=0.01)
    for row in ("weights", "latency of one sample", "same answer as float32", "output SQNR"):
        assert row in text
    assert "tutorials/01_quantize_by_hand.py" in text


def test_an_unknown_demo_is_refused_with_the_names_of_the_others():
    with pytest.raises(ConfigError, match="no demo 'mnist'; choose one of digits, eff"):
        run_demo(Console(file=io.StringIO()), "mnist")
