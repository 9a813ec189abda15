"""`python -m tvm_quant.bench COMMAND`: one file per command, each prints a table."""

from __future__ import annotations

from collections.abc import Callable

import typer

from tvm_quant.bench.accuracy import accuracy, table
from tvm_quant.bench.agreement import agreement
from tvm_quant.bench.memory import PROBE, memory, probe
from tvm_quant.bench.peers import peers
from tvm_quant.bench.speed import speed
from tvm_quant.bench.workers import workers

app = typer.Typer(
    help="Measure quantized networks.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

COMMANDS: dict[str, Callable[..., None]] = {
    "accuracy": accuracy,
    "table": table,
    "agreement": agreement,
    "memory": memory,
    "workers": workers,
    "peers": peers,
    "speed": speed,
}
"""{command: function}, in the order of the help."""

for _name, _command in COMMANDS.items():
    app.command(_name)(_command)
app.command(PROBE, hidden=True)(probe)

if __name__ == "__main__":
    app(prog_name="python -m tvm_quant.bench")
