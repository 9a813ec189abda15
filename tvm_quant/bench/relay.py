"""`relay`: one script for `tvm.relay`, run by the stack of old and by ours, in turns."""

from __future__ import annotations

import json as jsonlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import onnx
import typer

from tvm_quant.bench import options, relay_script
from tvm_quant.bench.light import LIGHT, light
from tvm_quant.bench.report import Sheet, number, publish, stderr
from tvm_quant.errors import UnsupportedError
from tvm_quant.lists import matching

SCRIPT = Path(relay_script.__file__)
OracleOption = Annotated[
    Path, typer.Option(help="Python of an environment whose TVM still has Relay.")
]
ModeOption = Annotated[str, typer.Option(help="Modes to measure: a shell pattern.")]
TargetOption = Annotated[
    str,
    typer.Option(
        help="What the stack of old compiles for. Where the CPU has AVX-512, its int8 is right "
        "with -mcpu=cascadelake alone."
    ),
]


def relay(
    oracle_python: OracleOption = Path("python3.10"),
    oracle_target: TargetOption = "llvm -mtriple=x86_64-pc-linux-gnu -mcpu=core-avx2",
    only: options.Only = None,
    mode: ModeOption = "*",
    json: options.Json = None,
    markdown: options.Markdown = None,
) -> None:
    """Error, quantize time and latency of the old relay.quantize and of ours, on one script.

    Whole networks (light_*) take the old stack minutes for each mode: they are measured where
    --only names them.
    """
    names = matching(only or list(relay_script.NETS), [*relay_script.NETS, *LIGHT])
    modes = matching([mode], list(relay_script.MODES), "mode")
    rows: list[dict[str, Any]] = []
    for name in names:
        with stderr().status(f"{name} ..."):
            rows += in_turn(name, modes, oracle_python, oracle_target)
    publish(sheet(rows), rows, json, markdown)


def in_turn(
    name: str, modes: Sequence[str], oracle_python: Path, oracle_target: str
) -> list[dict[str, Any]]:
    """Rows of one network: first the stack of old, then ours."""
    with tempfile.TemporaryDirectory() as folder:
        network = name
        if name in LIGHT:
            network = str(Path(folder) / f"{name}.onnx")
            onnx.save(light(name), network)
        indices = ",".join(str(list(relay_script.MODES).index(mode)) for mode in modes)
        old = _tried(name, modes, [str(oracle_python)], oracle_target, indices, network, own=False)
        ours = [sys.executable, "-m", "tvm_relay"]
        new = _tried(name, modes, ours, "llvm", indices, network, own=True)
    return paired(old, new)


def _tried(
    name: str, modes: Sequence[str], command: Sequence[str], *arguments: str, own: bool
) -> list[dict[str, Any]]:
    """The rows of a network, or what its failure says in each."""
    try:
        return run_script(command, *arguments, own=own)
    except UnsupportedError as error:
        return [{"network": name, "mode": mode, "error": str(error)} for mode in ("float", *modes)]


def run_script(command: Sequence[str], *arguments: str, own: bool) -> list[dict[str, Any]]:
    """The rows that the script prints.

    Args:
        command: what runs a script.
        arguments: of the script: target, modes and networks.
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
