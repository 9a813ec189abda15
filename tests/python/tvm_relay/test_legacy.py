"""Scripts written for TVM while it had Relay run as they are, in a process of their own."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm

import tvm_relay
from tvm_quant import demo
from tvm_quant.frontend import FRONTENDS

SCRIPTS = Path(__file__).parent / "scripts"
ROOT = Path(tvm_relay.__file__).parents[2]


def run(script: Path, *arguments: object) -> subprocess.CompletedProcess:
    paths = [str(ROOT), str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-m", "tvm_relay", str(script), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )


def printed(script: str, *arguments: object) -> str:
    done = run(SCRIPTS / script, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def number(text: str, name: str) -> float:
    return float(text.rpartition(f"{name} ")[2].split(",")[0])


def test_a_network_of_operators_is_quantized_built_saved_and_run():
    text = printed("operators.py", "--one", "two")
    assert "arguments ['--one', 'two']" in text
    assert text.endswith(" 3 times\n")
    assert 0 < number(text, "error") < 0.03


def test_an_onnx_file_keeps_its_answers(tmp_path):
    np.save(tmp_path / "images.npy", demo.evaluation_data()[0][:200])
    text = printed("onnx_file.py", demo.model_path(), tmp_path / "images.npy")
    assert number(text, "agreement") > 0.9


@pytest.mark.skipif(importlib.util.find_spec("mxnet") is None, reason="needs MXNet")
@pytest.mark.skipif("mxnet" not in FRONTENDS, reason="needs the front end for MXNet")
def test_an_mxnet_symbol_is_calibrated_and_stays_close():
    assert 0 < number(printed("mxnet_symbol.py"), "error") < 0.03


def test_a_script_that_is_not_there_and_an_error_of_a_script_set_the_exit_status(tmp_path):
    missing = run(tmp_path / "none.py")
    assert missing.returncode == 2 and "usage" in missing.stderr
    script = tmp_path / "typo.py"
    script.write_text(
        "from tvm import relay\nwith relay.quantize.qconfig(nbit_dict={}):\n    pass\n"
    )
    failed = run(script)
    assert failed.returncode == 1
    assert "ConfigError: qconfig: unknown field(s) ['nbit_dict']" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_importing_the_package_leaves_tvm_as_it_is():
    assert not hasattr(tvm, "relay")
    assert not hasattr(tvm, "nd")
    assert "tvm.relay" not in sys.modules
