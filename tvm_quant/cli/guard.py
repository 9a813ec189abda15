"""What every sub-command has in common: errors in one line, warnings in one line, `--verbose`."""

from __future__ import annotations

import functools
import inspect
import signal
import traceback
import warnings
from collections import deque
from collections.abc import Callable
from typing import Annotated, Any, TextIO

import typer
from rich.console import Console
from rich.markup import escape

from tvm_quant.dataset import DatasetWarning
from tvm_quant.errors import TvmQuantError
from tvm_quant.search import AccuracyWarning
from tvm_quant.transform.range_records import CalibrationWarning

USER_ERROR = 1
PIPE_WIDTH = 200

Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show the traceback of an error, and all warnings.")
]


_received: deque[int] = deque([signal.SIGINT], maxlen=1)
"""The signal that interrupts, if one does."""


def interrupt(number: int, _frame: Any) -> None:
    """Handler of other signals that end the program: unwinds the stack as Ctrl-C does.

    KeyboardInterrupt passes through TVM's passes and leaves no temporary files.
    """
    _received.append(number)
    raise KeyboardInterrupt


def stdout() -> Console:
    """Where results go. A pipe or file gets lines of any length that a table needs."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPE_WIDTH)


def stderr() -> Console:
    """Where progress, warnings and errors go."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--verbose` to a command, and turn what it raises into a line and an exit code."""

    @functools.wraps(command)
    def run(*args: Any, verbose: bool = False, **kwargs: Any) -> None:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            warnings.simplefilter("default" if verbose else "ignore")
            for category in (DatasetWarning, CalibrationWarning, AccuracyWarning):
                warnings.simplefilter("always", category)
            try:
                command(*args, **kwargs)
            except KeyboardInterrupt:
                stderr().print("interrupted")
                raise typer.Exit(128 + _received[0]) from None
            except (TvmQuantError, OSError) as error:
                _show_error(error, verbose)
                raise typer.Exit(USER_ERROR) from None

    signature = inspect.signature(command, eval_str=True)
    flag = inspect.Parameter(
        "verbose", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Verbose
    )
    parameters = [*signature.parameters.values(), flag]
    # Typer reads both: the types must be evaluated in the module of the command, not in this one.
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del run.__wrapped__
    return run


def _show_error(error: Exception, verbose: bool) -> None:
    if verbose:
        stderr().print(escape("".join(traceback.format_exception(error))))
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines) or type(error).__name__
    stderr().print(f"[bold red]error:[/] {escape(text)}")


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    stderr().print(f"[bold yellow]warning:[/] {escape(str(message))}")
