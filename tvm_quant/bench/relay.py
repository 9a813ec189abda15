"""`relay`: one script for `tvm.relay`, run by the stack of old and by ours, in turns."""

from __future__ import annotations

import fnmatch
import json as jsonlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tvm_quant.bench import options, relay_script
from tvm_quant.bench.report import Sheet, number, publish
from tvm_quant.errors import ConfigError, UnsupportedError

SCRIPT = Path(relay_script.__file__)
OracleOption = Annotated[
    Path, typer.Option(help="Python of an environment whose TVM still has Relay.")
]
TargetOption = Annotated[str, typer.Option(help="What the stack of old compiles for.")]


def relay(
    oracle_python: OracleOption = Path("python3.10"),
    oracle_target: TargetOption = "llvm -mtriple=x86_64-pc-linux-gnu -mcpu=core-avx2",
    only: options.Only = None,
    json: options.Json = None,
    markdown: options.Markdown = None,
) -> None:
    """Error, quantize time and latency of the old relay.quantize and of ours, on one script."""
    names = select(only)
    old = run_script([str(oracle_python)], oracle_target, *names, own=False)
    new = run_script([sys.executable, "-m", "tvm_relay"], "llvm", *names, own=True)
    rows = paired(old, new)
    publish(sheet(rows), rows, json, markdown)


def select(patterns: Sequence[str] | None) -> list[str]:
    """Networks of the script that match one of the patterns; all without patterns.

    Raises:
        ConfigError: a pattern matches nothing.
    """
    for pattern in patterns or ():
        if not fnmatch.filter(relay_script.NETS, pattern):
            known = ", ".join(relay_script.NETS)
            raise ConfigError(f"no network matches '{pattern}'; there are {known}")
    return [
        name
        for name in relay_script.NETS
        if not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    ]


def run_script(command: Sequence[str], *arguments: str, own: bool) -> list[dict[str, Any]]:
    """The rows that the script prints.

    Args:
        command: what runs a script.
        arguments: of the script: target and networks.
        own: whether it sees the packages of this process.

    Raises:
        UnsupportedError: it failed; the message has its last line.
    """
    environment = {**os.environ, "TVM_NUM_THREADS": "1"}
    if not own:
        environment.pop("PYTHONPATH", None)
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*command, str(SCRIPT), *arguments],
            capture_output=True,
            text=True,
            env=environment,
            cwd=folder,
        )
    found = [line for line in done.stdout.splitlines() if line.startswith("RESULTS ")]
    if not found:
        last = (done.stderr.strip().splitlines() or ["nothing on standard error"])[-1]
        raise UnsupportedError(f"{command[0]} did not run the script to its end: {last}")
    rows: list[dict[str, Any]] = jsonlib.loads(found[-1].removeprefix("RESULTS "))
    return rows


def paired(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """One row for each network and mode, with both stacks."""
    ours = {(row["network"], row["mode"]): row for row in new}
    return [
        {
            "network": row["network"],
            "mode": row["mode"],
            "old": dict(row),
            "new": dict(ours[row["network"], row["mode"]]),
        }
        for row in old
    ]


def sheet(rows: Sequence[Mapping[str, Any]]) -> Sheet:
    """Both stacks side by side; where one failed, what it said."""
    return Sheet(
        columns=(
            "<network",
            "<mode",
            "relative error, old",
            "ours",
            "s to quantize, old",
            "ours",
            "ms, old",
            "ours",
        ),
        rows=[_line(row) for row in rows],
    )


def _line(row: Mapping[str, Any]) -> list[str]:
    old, new = row["old"], row["new"]
    errors = [side.get("error") or number(side.get("relative"), 4) for side in (old, new)]
    seconds = [number(side.get("seconds"), 2) for side in (old, new)]
    times = [number(side.get("ms"), 3) for side in (old, new)]
    return [row["network"], row["mode"], *errors, *seconds, *times]
