"""What happens when a command fails."""

import signal
import warnings
from collections import deque

import pytest
import typer
from typer.testing import CliRunner

from tvm_quant.cli import guard
from tvm_quant.cli.guard import guarded
from tvm_quant.dataset import DatasetWarning
from tvm_quant.errors import DatasetError


def outcome(raised, *flags):
    def command() -> None:
        raise raised

    app = typer.Typer()
    app.command()(guarded(command))
    return CliRunner().invoke(app, list(flags))


def test_a_user_error_is_one_line_and_code_1():
    result = outcome(DatasetError("input 'x' has [NaN]\n  in sample 3"))
    assert result.exit_code == 1
    assert result.stderr == "error: input 'x' has [NaN] in sample 3\n"
    assert result.stdout == ""


def test_an_error_of_the_operating_system_is_one_line_and_code_1():
    result = outcome(PermissionError(13, "Permission denied", "m.onnx"))
    assert result.exit_code == 1
    assert result.stderr == "error: [Errno 13] Permission denied: 'm.onnx'\n"


def test_verbose_shows_the_traceback():
    result = outcome(DatasetError("input 'x'"), "--verbose")
    assert result.exit_code == 1
    assert "Traceback (most recent call last)" in result.stderr
    assert result.stderr.endswith("error: input 'x'\n")


def test_an_interrupt_is_code_130():
    result = outcome(KeyboardInterrupt())
    assert result.exit_code == 130
    assert result.stderr == "interrupted\n"


def test_a_fault_of_the_program_is_not_hidden():
    assert isinstance(outcome(ZeroDivisionError("x")).exception, ZeroDivisionError)


def test_a_warning_is_one_line():
    def command() -> None:
        warnings.warn("one sample [only]", DatasetWarning, stacklevel=1)

    app = typer.Typer()
    app.command()(guarded(command))
    result = CliRunner().invoke(app)
    assert result.stderr == "warning: one sample [only]\n"
    assert result.exit_code == 0


def test_termination_unwinds_the_stack_and_is_code_143(monkeypatch):
    monkeypatch.setattr(guard, "_received", deque([signal.SIGINT], maxlen=1))
    with pytest.raises(KeyboardInterrupt):
        guard.interrupt(signal.SIGTERM, None)
    assert outcome(KeyboardInterrupt()).exit_code == 143
