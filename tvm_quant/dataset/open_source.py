"""The table of sources. A new kind of data is one file and one row."""

from __future__ import annotations

from typing import Any

from tvm_quant.dataset.images import is_folder, open_folder
from tvm_quant.dataset.iterable import is_iterable, open_iterable
from tvm_quant.dataset.npz import is_npz, open_npz
from tvm_quant.dataset.source import Request, Source, SourceRow
from tvm_quant.dataset.stacked import is_stacked, open_stacked
from tvm_quant.errors import DatasetError

SOURCES = {
    row.name: row
    for row in (
        SourceRow(name="npz", accepts=is_npz, open=open_npz),
        SourceRow(name="images", accepts=is_folder, open=open_folder),
        SourceRow(name="stacked", accepts=is_stacked, open=open_stacked),
        SourceRow(name="iterable", accepts=is_iterable, open=open_iterable),
    )
}
"""{name: row}; the first row that accepts the data opens it."""


def open_source(data: Any, request: Request) -> Source:
    """Open any data a user may pass.

    Raises:
        DatasetError: nobody takes it, or its row refuses it.
    """
    for row in SOURCES.values():
        if row.accepts(data, request):
            return row.open(data, request)
    raise DatasetError(
        f"data of type {type(data).__name__} cannot be read; pass an iterable of batches, stacked "
        "arrays, an .npz file or a folder of images"
    )
