"""The same script on two stacks, side by side."""

import json
import sys

import pytest

from tvm_quant.bench import relay
from tvm_quant.errors import UnsupportedError

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
