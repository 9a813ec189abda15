import numpy as np
import pytest

from tvm_quant.bench.agreement import compare as compare_with_simulation
from tvm_quant.bench.builds import compare as compare_builds
from tvm_quant.bench.measure import constant_bytes
from tvm_quant.bench.memory import measure, peak_bytes
from tvm_quant.bench.peers import compare as compare_with_tools
from tvm_quant.bench.processes import fresh_processes
from tvm_quant.bench.tools import TOOLS, Tool
from tvm_quant.bench.workers import compare as compare_workers


def test_a_measurement_compares_int8_with_float_on_the_same_samples(subject):
    result = subject.measure("default")
    assert (result.workload, result.samples, result.calibration) == ("tiny", 10, 8)
    assert result.sqnr_db[0] > 30
    assert result.agreement >= 90
    labels = subject.evaluation.labels
    exact = 100 * np.mean(subject.float_outputs[0].argmax(1) == labels)
    assert result.float_score == exact
    assert result.int8_bytes < result.float_bytes == constant_bytes(subject.module)
    assert result.int8_ms.p10 <= result.int8_ms.median <= result.int8_ms.p90


def test_the_network_is_profiled_once_for_all_estimators(subject):
    first, second = subject.measure("minmax"), subject.measure("mse+per_channel=false")
    assert first.profile_s > 0
    assert second.profile_s == 0
    assert first.sqnr_db != second.sqnr_db


def test_integers_agree_with_simulation_layer_by_layer(subject):
    result = compare_with_simulation(subject, "default", layer_samples=4)
    assert result.steps <= 1
    assert result.share <= 0.01
    assert result.difference_db < 0.1
    assert len(result.layers) >= 2
    assert sum(layer.elements for layer in result.layers) >= 4 * 3 * 6 * 6


def test_two_builds_give_the_same_bits(subject):
    result = compare_builds(subject, "default")
    assert (result.different, result.samples) == (0, 10)
    assert result.score == result.plain_score
    assert result.elements >= 10


def test_threads_find_the_same_scales_as_one_worker(subject):
    runs = [("none", 1), ("threads", 2)]
    alone, threads = compare_workers(subject, "default", runs)
    assert alone.quantizers == threads.quantizers > 0
    assert threads.different == 0


def test_peak_memory_is_that_of_this_process():
    block = np.ones(10_000_000)
    assert peak_bytes() > block.nbytes


def test_the_memory_of_a_quantization_is_measured_in_a_process_of_its_own(shared):
    with fresh_processes(1) as pool:
        found = pool.submit(measure, "mnist", "default", 2).result()
    assert (found.workload, found.samples) == ("mnist", 2)
    assert found.peak_mb > 10


def test_onnx_runtime_measures_the_same_samples(subject):
    pytest.importorskip("onnxruntime")
    ours, theirs = compare_with_tools(subject, ["default"], [TOOLS["onnxruntime as written"]])
    assert (ours.config, theirs.config) == ("default", "onnxruntime as written")
    assert ours.samples == theirs.samples == 10
    assert theirs.sqnr_db[0] > 25
    assert ours.float_ms == theirs.float_ms
    assert all(0 < one.int8_ms.p10 <= one.int8_ms.p90 < 1000 for one in (ours, theirs))


def test_a_tool_that_is_missing_or_fails_is_reported_and_left_out(subject, capsys):
    def fail(*_args):
        raise RuntimeError("no such layer")

    missing = Tool(name="missing", packages=("no_such_package",), quantize=fail, load=fail)
    failing = Tool(name="failing", packages=(), quantize=fail, load=fail)
    (ours,) = compare_with_tools(subject, ["minmax"], [missing, failing])
    assert ours.config == "minmax"
    told = capsys.readouterr().err.splitlines()
    assert told == [
        "skipped tiny: missing needs: pip install no_such_package",
        "skipped tiny: failing fails: RuntimeError: no such layer",
    ]
