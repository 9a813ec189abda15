"""Showing the calibration table: as a table on the terminal, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.table import Table

from tvm_quant.artifact import QuantizerRow
from tvm_quant.config import matches
from tvm_quant.errors import ConfigError

SHOWN = 20
"""Names that a message lists at most."""


def select(rows: Sequence[QuantizerRow], patterns: Sequence[str]) -> list[QuantizerRow]:
    """Rows whose node or operator matches one of the patterns; all without patterns.

    Raises:
        ConfigError: a pattern matches nothing.
    """
    for pattern in patterns:
        if not any(matches(pattern, row.node, row.op) for row in rows):
            nodes = list(dict.fromkeys(row.node for row in rows))
            more = f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else ""
            raise ConfigError(
                f"pattern '{pattern}' matches no node; the nodes are "
                f"{', '.join(nodes[:SHOWN])}{more}"
            )
    if not patterns:
        return list(rows)
    return [row for row in rows if any(matches(p, row.node, row.op) for p in patterns)]


def quantizer_table(rows: Sequence[QuantizerRow]) -> Table:
    """One line per input port, then per call without quantizers."""
    table = Table(box=None, pad_edge=False)
    for name in ("node", "op", "port", "tensor", "kind", "grid"):
        table.add_column(name, overflow="fold")
    for name in ("scale", "zero point", "range"):
        table.add_column(name, justify="right")
    previous = None
    for row in rows:
        head = ("", "") if row.node == previous else (row.node, short_op(row.op))
        previous = row.node
        if row.port is not None:
            table.add_row(*head, str(row.port), row.tensor, row.kind, row.grid, *_numbers(row))
    return table


def float_table(rows: Sequence[QuantizerRow]) -> Table:
    """One line per call that stays in float, with the reason."""
    table = Table(box=None, pad_edge=False)
    for name in ("node", "op", "stays in float because"):
        table.add_column(name, overflow="fold")
    for row in rows:
        if row.reason is not None:
            table.add_row(row.node, short_op(row.op), row.reason)
    return table


def to_json(rows: Sequence[QuantizerRow]) -> str:
    """The rows as a JSON list, with all scales of each channel."""
    return json.dumps([row.to_dict() for row in rows], indent=1)


def short_op(op: str) -> str:
    """The last part of an operator's name.

    >>> short_op("relax.nn.conv2d")
    'conv2d'
    """
    return op.rpartition(".")[2]


def _numbers(row: QuantizerRow) -> tuple[str, str, str]:
    if row.scale is None or row.zero_point is None:
        return "not calibrated", "", ""
    return (
        span(row.scale, "{:.4g}"),
        span(row.zero_point, "{}"),
        f"{row.low:.4g} .. {row.high:.4g}",
    )


def span(values: Sequence[float], style: str) -> str:
    """The smallest and the largest value; one where they read the same.

    >>> span([0.25, 1], "{:.3g}"), span([1, 1], "{}")
    ('0.25 .. 1', '1')
    """
    low, high = style.format(min(values)), style.format(max(values))
    return low if low == high else f"{low} .. {high}"
