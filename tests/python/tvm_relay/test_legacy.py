"""Scripts written for `tvm.relay` run as they are, each in a process of its own."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tvm

import tvm_relay

REPOSITORY = Path(__file__).parents[3]
SCRIPTS = Path(__file__).parent / "scripts"


def run(script: Path | str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "python")])
    return subprocess.run(
        [sys.executable, "-m", "tvm_relay", str(script), *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )


def relative_error(done: subprocess.CompletedProcess[str]) -> float:
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("RELATIVE")]
    return float(line.split()[1])


def test_a_script_with_a_network_of_relay_operators_runs():
    assert 0 < relative_error(run(SCRIPTS / "relay_network.py")) < 0.05


def test_a_script_with_an_onnx_network_and_a_library_in_a_file_runs(tmp_path):
    assert 0 < relative_error(run(SCRIPTS / "onnx_network.py", str(tmp_path))) < 0.05


@pytest.mark.skipif(importlib.util.find_spec("mxnet") is None, reason="mxnet is not installed")
@pytest.mark.skipif(
    importlib.util.find_spec("tvm_quant.frontend.mxnet") is None, reason="no front door for MXNet"
)
def test_a_script_with_an_mxnet_network_calibrated_on_a_generator_runs():
    assert 0 < relative_error(run(SCRIPTS / "mxnet_network.py")) < 0.05


def test_a_script_with_a_network_of_the_old_tutorials_runs():
    assert 0 < relative_error(run(SCRIPTS / "testing_network.py")) < 0.05


#: What is gone, and the beginning of what is said of it.
GONE = {
    "from tvm.relay import ir_pass": "ImportError: relay.ir_pass is gone: relay.analysis has",
    "import tvm.relay.ir_pass": "ImportError: relay.ir_pass is gone",
    "relay.ir_pass.infer_type": "AttributeError: relay.ir_pass is gone",
    "from tvm.relay.testing import densenet": "ImportError: relay.testing.densenet is gone",
    "from tvm.contrib.debugger import debug_executor": "ImportError: tvm.contrib.debugger is gone",
    "import tvm.contrib.debugger.debug_runtime": "ImportError: tvm.contrib.debugger is gone",
    "from tvm import autotvm": "ImportError: tvm.autotvm is gone: kernels have schedules",
}


def test_what_is_gone_says_what_to_write_instead(tmp_path):
    script = tmp_path / "gone.py"
    script.write_text(
        "from tvm import relay\n"
        f"for line in {list(GONE)}:\n"
        "    try:\n"
        "        exec(line)\n"
        "    except Exception as error:\n"
        "        print(f'{type(error).__name__}: {error}')\n"
    )
    done = run(script)
    assert done.returncode == 0, done.stderr
    for line, wanted in zip(done.stdout.splitlines(), GONE.values(), strict=True):
        assert line.startswith(wanted)


def test_a_module_is_made_of_functions_by_name(tmp_path):
    script = tmp_path / "module.py"
    script.write_text(
        "import tvm\n"
        "from tvm import relay\n"
        "x = relay.var('x', shape=(2, 3))\n"
        "func = relay.Function([x], relay.nn.relu(x))\n"
        "mod = tvm.IRModule({relay.GlobalVar('main'): func})\n"
        "print(mod['main'] is func)\n"
        "typed = relay.transform.InferType()(mod)\n"
        "print(isinstance(typed, tvm.IRModule), tvm.IRModule(dict(typed.functions_items())))\n"
        "print(tvm.ir.load_json(tvm.ir.save_json(tvm.IRModule())).functions)\n"
    )
    done = run(script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("True\nTrue ")
    assert "R.nn.relu(x)" in done.stdout
    assert done.stdout.endswith("{}\n")


def test_an_error_of_ours_is_one_line_and_another_is_a_traceback(tmp_path):
    ours, theirs = tmp_path / "ours.py", tmp_path / "theirs.py"
    ours.write_text("from tvm import relay\nrelay.quantize.QConfig(global_scale=-1.0)\n")
    theirs.write_text("raise ValueError('of the script')\n")
    refused = run(ours)
    assert refused.returncode == 1
    assert refused.stderr.startswith("ConfigError: global_scale is -1.0")
    assert "ValueError: of the script" in run(theirs).stderr


def test_without_a_script_the_usage_is_shown():
    done = run("missing.py")
    assert (done.returncode, done.stderr) == (
        2,
        "usage: python -m tvm_relay SCRIPT.py [arguments]\n",
    )


def test_importing_the_package_changes_nothing_in_tvm():
    assert tvm_relay.nn is not None
    assert not hasattr(tvm, "relay")
    assert not hasattr(tvm, "nd")
