"""Help, and wrong usage."""

import subprocess
import sys

import pytest

from tvm_quant.cli import COMMANDS
from tvm_quant.demo import DEMOS
from tvm_quant.estimator import ActivationEstimator, WeightEstimator, estimator_names
from tvm_quant.frontend import FRONTENDS
from tvm_quant.hardware import HARDWARE


def words(text):
    """Text without the frame and the line breaks of the help."""
    return " ".join(text.replace("│", " ").split())


def test_help_lists_every_command(invoke):
    result = invoke("--help")
    assert result.exit_code == 0
    for name in COMMANDS:
        assert f" {name} " in result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_with_an_example(invoke, name):
    result = invoke(name, "--help")
    assert result.exit_code == 0
    assert f"tvm-quant {name}" in words(result.stdout)
    assert "--verbose" in result.stdout


def test_choices_come_from_the_tables(invoke):
    text = words(invoke("quantize", "--help").stdout)
    for names in (
        HARDWARE,
        estimator_names(ActivationEstimator),
        estimator_names(WeightEstimator),
    ):
        assert ", ".join(names) in text
    for row in FRONTENDS.values():
        assert words(row.reads) in text
    assert ", ".join(DEMOS) in words(invoke("demo", "--help").stdout)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("frobnicate",), "No such command 'frobnicate'"),
        (("quantize", "m.onnx"), "Missing option '--output' / '-o'"),
        (("compile", "-o", "m.so"), "Missing argument"),
        (("quantize", "m.onnx", "-o", "a", "--hardware", "x86_vni"), "Did you mean 'x86_vnni'?"),
        (("quantize", "m.onnx", "-o", "a", "--calibrate", "max"), "is not one of robust, minmax,"),
        (("quantize", "m.onnx", "-o", "a", "--weights", "kl_divergence"), "is not one of"),
        (("quantize", "m.onnx", "-o", "a", "--limit", "0"), "Invalid value for '--limit'"),
        (("quantize", "m.onnx", "-o", "a", "--workers", "0"), "Invalid value for '--workers'"),
        (
            ("quantize", "m.onnx", "-o", "a", "--on-bad", "drop"),
            "'drop' is not one of 'error', 'skip'",
        ),
        (("demo", "--model", "digit"), "Did you mean 'digits'?"),
    ],
)
def test_wrong_usage_is_code_2(invoke, arguments, message):
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in words(result.output)


def test_version_is_shown(invoke):
    result = invoke("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("tvm-quant 0.")


def test_the_program_ends_with_a_code_and_without_traceback(tmp_path):
    command = "from tvm_quant.cli import main; main()"
    model = tmp_path / "none.onnx"
    done = subprocess.run(
        [sys.executable, "-c", command, "quantize", model, "--data", "d.npz", "-o", tmp_path / "o"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"No such model file: {model}" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
