"""The command line, `tvm-quant`: one file per sub-command, each thin over the public functions.

Exit codes: 0 done, 1 a mistake that the message explains, 2 wrong usage, 130 interrupted, 143
terminated.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Annotated

import typer

from tvm_quant import __version__
from tvm_quant.cli.bench import bench
from tvm_quant.cli.compile import compile_artifact
from tvm_quant.cli.demo import demo
from tvm_quant.cli.doctor import doctor
from tvm_quant.cli.evaluate import evaluate_artifact
from tvm_quant.cli.export import export_artifact
from tvm_quant.cli.guard import guarded, interrupt
from tvm_quant.cli.import_model import import_model
from tvm_quant.cli.inspect import inspect_artifact
from tvm_quant.cli.quantize import quantize_model
from tvm_quant.cli.run import run_artifact
from tvm_quant.cli.search import search_model
from tvm_quant.cli.vta import vta

app = typer.Typer(
    name="tvm-quant",
    help="Quantize networks for Apache TVM after training.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

COMMANDS: dict[str, Callable[..., None]] = {
    "quantize": quantize_model,
    "import": import_model,
    "search": search_model,
    "compile": compile_artifact,
    "run": run_artifact,
    "evaluate": evaluate_artifact,
    "inspect": inspect_artifact,
    "export": export_artifact,
    "demo": demo,
    "doctor": doctor,
}
"""{sub-command: function}, in the order of the help."""

#: Commands that do something without arguments.
COMPLETE = ("demo", "doctor")

for _name, _function in COMMANDS.items():
    app.command(_name, no_args_is_help=_name not in COMPLETE)(guarded(_function))
app.add_typer(bench, name="bench")
app.add_typer(vta, name="vta")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tvm-quant {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Quantize networks for Apache TVM after training."""


def main() -> None:
    """Entry point of the console script."""
    signal.signal(signal.SIGTERM, interrupt)
    app()
