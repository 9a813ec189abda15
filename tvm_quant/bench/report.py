"""Showing results: on the terminal, as JSON, as Markdown for the documentation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tvm_quant.atomic import atomic_write
from tvm_quant.bench.measure import Latency, Result, environment


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A table of texts.

    Attributes:
        columns: headings; those that start with "<" are aligned to the left.
        rows: one text a column.
        title: above the table; empty for none.
    """

    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    title: str = ""

    def rich(self) -> Table:
        """For the terminal."""
        table = Table(box=None, pad_edge=False, title=self.title or None, title_justify="left")
        for column in self.columns:
            left = column.startswith("<")
            table.add_column(
                column.removeprefix("<"), justify="left" if left else "right", no_wrap=True
            )
        for row in self.rows:
            table.add_row(*row)
        return table

    def markdown(self) -> str:
        """For documentation."""
        heads = [column.removeprefix("<") for column in self.columns]
        rule = ["---" if column.startswith("<") else "---:" for column in self.columns]
        lines = [heads, rule, *self.rows]
        title = f"## {self.title}\n\n" if self.title else ""
        return title + "".join("| " + " | ".join(line) + " |\n" for line in lines)


def results_sheet(results: Sequence[Result]) -> Sheet:
    """One line per network and configuration."""
    return Sheet(
        columns=(
            "<network",
            "<config",
            "<metric",
            "float",
            "int8",
            "drop",
            "agree",
            "SQNR dB",
            "kB float",
            "kB int8",
            "ms float",
            "ms int8",
            "quantize s",
            "samples",
        ),
        rows=[_line(result) for result in results],
    )


def _line(result: Result) -> list[str]:
    return [
        result.workload,
        result.config,
        result.metric or "",
        number(result.float_score, 2),
        number(result.int8_score, 2),
        number(result.drop, 2),
        number(result.agreement, 2),
        number(min(result.sqnr_db), 1),
        number(result.float_bytes / 1000, 0),
        number(result.int8_bytes / 1000, 0),
        latency(result.float_ms),
        latency(result.int8_ms),
        number(result.profile_s + result.quantize_s, 1),
        str(result.samples),
    ]


def number(value: float | None, digits: int) -> str:
    """A number with so many digits after the point; nothing for None.

    >>> number(0.126, 2), number(None, 2)
    ('0.13', '')
    """
    return "" if value is None else f"{value:.{digits}f}"


def latency(value: Latency | None) -> str:
    """The median with the 10th and 90th percentile."""
    return "" if value is None else f"{value.median:.2f} ({value.p10:.2f}-{value.p90:.2f})"


def publish(
    sheet: Sheet, results: Sequence[Mapping[str, Any]], json: Path | None, markdown: Path | None
) -> None:
    """Print a table, and `save` it."""
    stdout().print(sheet.rich())
    save(results, json, markdown, sheet)


def save(
    results: Sequence[Mapping[str, Any]], json: Path | None, markdown: Path | None, *sheets: Sheet
) -> None:
    """Write results to the files of --json and --markdown, where these are given."""
    if json is not None:
        write_json(json, results)
    if markdown is not None:
        write_markdown(markdown, *sheets)


def write_json(path: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """Write results with the versions and the machine that made them."""
    record = {"environment": environment(), "results": list(results)}
    with atomic_write(path) as stream:
        stream.write((json.dumps(record, indent=1) + "\n").encode())


def write_markdown(path: Path, *sheets: Sheet) -> None:
    """Write tables for the documentation."""
    with atomic_write(path) as stream:
        stream.write("\n".join(sheet.markdown() for sheet in sheets).encode())


def stdout() -> Console:
    """Where tables go; not folded where no terminal is."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=240)


def stderr() -> Console:
    """Where progress goes."""
    return Console(stderr=True, highlight=False, soft_wrap=True)
