import json
from dataclasses import replace

import numpy as np
import onnx
import pytest

from tvm_quant.bench import cases, speed
from tvm_quant.bench.layer_times import LayerTime
from tvm_quant.bench.measure import Latency
from tvm_quant.bench.plot import draw_speed
from tvm_quant.bench.samples import Column, InMemory, Samples
from tvm_quant.bench.speed import measure
from tvm_quant.bench.speed_report import (
    Speed,
    gain_sheets,
    layer_sheets,
    ratios,
    speed_sheets,
)
from tvm_quant.bench.systems import SYSTEMS
from tvm_quant.bench.zoo.builder import Builder
from tvm_quant.errors import ConfigError

OURS, THEIRS = "tvm_quant int8", "onnxruntime int8"


def result(network, system, median):
    return Speed(network=network, system=system, latency=Latency.of([median]))


RESULTS = [
    result("a", OURS, 2.0),
    result("a", THEIRS, 3.0),
    result("b", OURS, 1.0),
    result("b", THEIRS, 6.0),
]


def test_ratios_are_of_medians_and_their_mean_is_geometric():
    assert ratios(RESULTS) == {
        "a": {OURS: 1.0, THEIRS: 1.5},
        "b": {OURS: 1.0, THEIRS: 6.0},
        "geometric mean": {OURS: 1.0, THEIRS: pytest.approx(3.0)},
    }


def test_without_our_own_times_there_are_no_ratios():
    assert ratios([result("a", THEIRS, 3.0)]) == {}
    (sheet,) = speed_sheets([result("a", THEIRS, 3.0)])
    assert sheet.rows[0][3:] == ["3.00 (3.00-3.00)", ""]


def test_a_table_has_a_time_and_a_ratio_for_each_system():
    (sheet,) = speed_sheets(RESULTS)
    heads = [f"{OURS} ms", "ratio", f"{THEIRS} ms", "ratio"]
    assert sheet.columns == ("<network", "int8 GOPS", "peak %", *heads)
    assert sheet.rows[0] == ["a", "", "", "2.00 (2.00-2.00)", "1.00", "3.00 (3.00-3.00)", "1.50"]
    assert sheet.rows[-1] == ["geometric mean", "", "", "", "1.00", "", "3.00"]


LAYERS = [
    LayerTime(name="conv1", what="conv 3x3 3 -> 8", output=(1, 8, 4, 4), us=6.0, operations=60_000),
    LayerTime(name="fc", what="matmul 8 -> 4", output=(1, 4), us=2.0, operations=4_000),
    LayerTime(name="max_pool2d", what="1 x", output=(1, 2, 2, 8), us=2.0),
]


def test_each_number_of_threads_has_a_table_and_the_others_their_gain():
    faster = [
        replace(one, threads=2, latency=Latency.of([ms]))
        for one, ms in zip(RESULTS, (1.0, 2.0, 3.0, 4.0), strict=True)
    ]
    one, two = speed_sheets([*RESULTS, *faster])
    assert (one.title, two.title) == ("1 thread", "2 threads")
    assert two.rows[-1] == ["geometric mean", "", "", "", "1.00", "", "1.63"]
    assert gain_sheets(RESULTS) == []
    (gain,) = gain_sheets([*RESULTS, *faster])
    assert gain.title == "Times as fast with 2 threads as with 1"
    assert gain.columns == ("<network", OURS, THEIRS)
    assert gain.rows == [
        ["a", "2.00", "1.50"],
        ["b", "0.33", "1.50"],
        ["geometric mean", "0.82", "1.50"],
    ]


def test_operations_per_second_are_shown_beside_the_peak():
    ours = replace(result("a", OURS, 2.0), operations=80_000_000, peak_gops=160.0)
    unknown = replace(ours, peak_gops=None)
    shown = [speed_sheets([one])[0].rows[0][:3] for one in (ours, unknown)]
    assert shown == [["a", "40.0", "25"], ["a", "40.0", ""]]


def test_layers_have_a_table_that_ends_with_the_sum_over_contractions():
    ours = replace(result("a", OURS, 2.0), operations=64_000, peak_gops=20.0, layers=LAYERS)
    (sheet,) = layer_sheets([ours, result("b", OURS, 1.0)])
    assert sheet.rows == [
        ["conv1", "conv 3x3 3 -> 8", "1x8x4x4", "6.0", "60.0", "10.0", "50"],
        ["fc", "matmul 8 -> 4", "1x4", "2.0", "20.0", "2.0", "10"],
        ["max_pool2d", "1 x", "1x2x2x8", "2.0", "20.0", "", ""],
        ["all contractions", "2 x", "", "8.0", "80.0", "8.0", "40"],
    ]
    assert ours.to_dict()["layers"][0]["gops"] == 10.0


def test_the_picture_is_written(tmp_path):
    draw_speed(tmp_path / "speed.svg", ratios(RESULTS))
    text = (tmp_path / "speed.svg").read_text()
    assert "<svg" in text
    assert [entry.name for entry in tmp_path.iterdir()] == ["speed.svg"]


def test_systems_run_in_processes_of_their_own(monkeypatch):
    pytest.importorskip("onnxruntime")
    net = Builder(size=16)
    model = net.model(net.classify(net.conv("data", 8, 3), 10))

    def case(_name, folder, _samples):
        onnx.save(model, folder / "model.onnx")
        images = np.random.default_rng(0).normal(size=(4, 3, 16, 16)).astype("float32")
        samples = Samples.all_of({"data": Column(stored=InMemory(images))})
        return folder / "model.onnx", samples

    monkeypatch.setattr(cases, "case", case)
    systems = [SYSTEMS[name] for name in (OURS, "tvm_quant float", THEIRS)]
    results = measure("tiny", systems, threads=[1], rounds=2, layers=True)
    assert [found.system for found in results] == [system.name for system in systems]
    assert all(0 < found.latency.p10 <= found.latency.p90 < 1000 for found in results)
    ours, *others = results
    assert ours.operations == 2 * (8 * 256 * 27 + 8 * 10)
    assert sum(layer.operations for layer in ours.layers) == ours.operations
    assert not any(other.layers for other in others)


def test_an_interrupted_run_keeps_what_it_has_measured(monkeypatch, tmp_path):
    def one_network(name, *_args, **_options):
        if name != "resnet20":
            raise KeyboardInterrupt
        return [result(name, OURS, 2.0)]

    monkeypatch.setattr(speed, "measure", one_network)
    files = {suffix: tmp_path / f"speed.{suffix}" for suffix in ("json", "md", "svg")}
    with pytest.raises(KeyboardInterrupt):
        speed.speed(
            ["resnet20", "resnet32"],
            systems=OURS,
            json=files["json"],
            markdown=files["md"],
            plot=files["svg"],
        )
    (kept,) = json.loads(files["json"].read_text())["results"]
    assert (kept["network"], kept["median"]) == ("resnet20", 2.0)
    assert "| resnet20 |  |  | 2.00 (2.00-2.00) |" in files["md"].read_text()
    assert "<svg" in files["svg"].read_text()


@pytest.mark.parametrize(
    ("choose", "message"),
    [
        (lambda: speed._available("nothing*"), "no system matches 'nothing*'; there are tvm_quant"),
        (lambda: speed.speed(threads="1,0"), "--threads is '1,0'; expected numbers"),
        (lambda: cases.networks(["nothing*"]), "no network matches 'nothing*'; there are zoo/"),
    ],
)
def test_unknown_names_are_answered_with_the_known_ones(choose, message):
    with pytest.raises(ConfigError) as error:
        choose()
    assert message in str(error.value)


def test_patterns_choose_networks():
    assert cases.networks(["zoo/resnet*", "resnet8"]) == [
        "zoo/resnet18",
        "zoo/resnet50",
        "resnet8",
    ]
