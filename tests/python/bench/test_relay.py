"""The same script on two stacks, side by side."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tvm_quant.bench import relay
from tvm_quant.bench.light import light
from tvm_quant.errors import ConfigError, UnsupportedError

onnxruntime = pytest.importorskip("onnxruntime")

OLD = [
    {"network": "dense", "mode": "float", "ms": 2.0},
    {"network": "dense", "mode": "kl_divergence, max", "error": "bare assertion"},
]
NEW = [
    {"network": "dense", "mode": "kl_divergence, max", "relative": 0.01, "seconds": 1, "ms": 1.0},
    {"network": "dense", "mode": "float", "ms": 1.5},
]


def test_rows_are_paired_by_network_and_mode():
    rows = relay.paired(OLD, NEW)
    assert [(row["old"], row["new"]) for row in rows] == [(OLD[0], NEW[1]), (OLD[1], NEW[0])]


def test_a_light_graph_is_a_network_with_random_weights():
    model = light("light_squeezenet")
    assert "ConstantOfShape" not in {node.op_type for node in model.graph.node}
    session = onnxruntime.InferenceSession(model.SerializeToString())
    image = np.random.default_rng(0).standard_normal((1, 3, 224, 224), np.float32)
    (found,) = session.run(None, {session.get_inputs()[0].name: image})
    assert np.isfinite(found).all()
    assert found.std() > 0


def test_a_stack_that_fails_leaves_its_failure_in_every_mode(monkeypatch):
    def fail(*_arguments, own):
        if not own:
            raise UnsupportedError("killed")
        return [{"network": "dense", "mode": mode, "ms": 1.0} for mode in ("float", "m")]

    monkeypatch.setattr(relay, "run_script", fail)
    monkeypatch.setattr(relay.relay_script, "MODES", {"m": {}})
    rows = relay.in_turn("dense", ["m"], Path("python"), "llvm")
    assert [row["old"].get("error") for row in rows] == ["killed", "killed"]
    assert [row["new"]["ms"] for row in rows] == [1.0, 1.0]


def test_modes_that_match_nothing_are_refused():
    with pytest.raises(ConfigError, match="no mode matches 'x'; there are "):
        relay.relay(mode="x")


def test_a_failure_stands_where_the_error_would():
    sheet = relay.sheet(relay.paired(OLD, NEW))
    assert sheet.rows[1] == [
        "dense",
        "kl_divergence, max",
        "bare assertion",
        "0.0100",
        "",
        "1.00",
        "",
        "1.000",
    ]


def test_the_script_is_run_by_another_python(tmp_path, monkeypatch):
    script = tmp_path / "script.py"
    script.write_text(f"import sys\nprint('RESULTS', {json.dumps(json.dumps(OLD))})\n")
    monkeypatch.setattr(relay, "SCRIPT", script)
    assert relay.run_script([sys.executable], "llvm", own=False) == OLD


def test_a_script_that_fails_is_refused_with_its_last_line(tmp_path, monkeypatch):
    script = tmp_path / "script.py"
    script.write_text("raise ImportError('no relay here')\n")
    monkeypatch.setattr(relay, "SCRIPT", script)
    with pytest.raises(UnsupportedError, match="to its end: ImportError: no relay here"):
        relay.run_script([sys.executable], "llvm", own=False)


def test_small_networks_are_judged_by_more_batches_than_files(monkeypatch):
    def vector(self, *_):
        self.input, self.shape = "data", (1, 2)

    monkeypatch.setattr(relay.relay_script.Subject, "_make", vector)
    monkeypatch.setattr(relay.relay_script.Subject, "_load", vector)
    small, file = (relay.relay_script.Subject(None, name) for name in ("dense", "network.onnx"))
    assert (len(small.unseen), len(file.unseen)) == (400, 16)
    assert len(small.samples) == len(file.samples) == 8
