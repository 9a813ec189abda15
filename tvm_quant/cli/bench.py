"""`tvm-quant bench COMMAND`: the measurements of `tvm_quant.bench`."""

from __future__ import annotations

import typer

from tvm_quant.bench.commands import COMMANDS
from tvm_quant.cli.guard import guarded

bench = typer.Typer(help="Measure quantized networks.", no_args_is_help=True)

for _name, _function in COMMANDS.items():
    bench.command(_name)(guarded(_function))
