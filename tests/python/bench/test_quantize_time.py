import numpy as np
import pytest

from tvm_quant.bench import cases
from tvm_quant.bench.quantize_time import (
    QUANTIZERS,
    Part,
    Quantized,
    Stopwatch,
    measure,
    medians,
    times_sheet,
)


def parts(*seconds):
    return [
        Part(name=f"part {index}", seconds=time, cpu_seconds=2 * time)
        for index, time in enumerate(seconds)
    ]


def test_the_table_has_the_whole_and_the_longer_parts():
    result = Quantized(
        network="a", system="tvm_quant", samples=8, parts=parts(1.5, 0.04, 2.0), peak_mb=123.4
    )
    assert times_sheet([result]).rows == [
        ["a", "tvm_quant", "8", "all", "3.5", "7.1", "123"],
        ["", "", "", "part 0", "1.5", "3.0", ""],
        ["", "", "", "part 2", "2.0", "4.0", ""],
    ]


def test_turns_of_a_system_give_the_median_of_each_part():
    turns = [
        Quantized(network="a", system="x", samples=8, parts=parts(*seconds), peak_mb=peak)
        for seconds, peak in (((1, 9), 5.0), ((2, 7), 7.0), ((9, 8), 6.0))
    ]
    other = Quantized(network="a", system="y", samples=8, parts=parts(1), peak_mb=1.0)
    first, second = medians([turns[0], other, *turns[1:]])
    assert [part.seconds for part in first.parts] == [2, 8]
    assert first.peak_mb == 6.0
    assert second == other


def test_a_stopwatch_times_parts_in_order():
    watch = Stopwatch()
    for name in ("first", "second"):
        with watch.part(name):
            np.ones(1000).sum()
    assert [part.name for part in watch.parts] == ["first", "second"]
    assert all(part.seconds > 0 for part in watch.parts)


@pytest.mark.parametrize("system", QUANTIZERS)
def test_a_network_is_quantized_from_its_file_on(system, subject, monkeypatch):
    pytest.importorskip(QUANTIZERS[system].package)
    model, samples = subject.workload.model(subject.places), subject.calibration
    monkeypatch.setattr(cases, "case", lambda *_: (model, samples))
    result = measure("tiny", system, 8)
    assert result.samples == 8
    assert result.whole.seconds == sum(part.seconds for part in result.parts) > 0
    assert {"quantize_static", "Profile"} & {part.name for part in result.parts}
