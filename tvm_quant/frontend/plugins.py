"""Rows that other packages bring: entry points of the group `tvm_quant.frontends`.

A package that reads one more format needs no change here; it says in its pyproject.toml

    [project.entry-points."tvm_quant.frontends"]
    relay = "tvm_relay.frontend:FRONTEND"

and what stands there is a `Frontend` of that name.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points

from tvm_quant.frontend.base import Frontend

GROUP = "tvm_quant.frontends"


class FrontendTable(Mapping[str, Frontend]):
    """Front ends by name: our own, then those of plug-ins, which are imported at first use.

    A plug-in that cannot be imported is left out, with a warning.

    Args:
        own: rows that a plug-in cannot replace.
    """

    def __init__(self, own: Iterable[Frontend]):
        self._own = {row.name: row for row in own}
        self._all: dict[str, Frontend] | None = None

    def __getitem__(self, name: str) -> Frontend:
        return self._rows()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows())

    def __len__(self) -> int:
        return len(self._rows())

    def _rows(self) -> dict[str, Frontend]:
        if self._all is None:
            self._all = dict(self._own)  # a plug-in may look at the table while it is imported
            found = (_load(entry) for entry in sorted(entry_points(group=GROUP)))
            brought = {row.name: row for row in found if row is not None}
            self._all = {**self._own, **brought, **self._own}
        return self._all


def _load(entry: EntryPoint) -> Frontend | None:
    try:
        row = entry.load()
    except Exception as error:
        warnings.warn(f"The front end '{entry.name}' ({entry.value}): {error}", stacklevel=2)
        return None
    if not isinstance(row, Frontend):
        warnings.warn(f"{entry.value} is no Frontend but {type(row).__name__}.", stacklevel=2)
        return None
    return row
