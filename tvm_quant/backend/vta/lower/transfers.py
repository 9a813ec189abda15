"""Rectangles of packed tensors as few transfers."""

from __future__ import annotations

from collections.abc import Iterator

from tvm_quant.backend.vta.config import MEMORY_BITS

LARGEST = (1 << MEMORY_BITS) - 1


def rectangles(
    planes: int, plane_stride: int, rows: int, columns: int, row_stride: int
) -> Iterator[tuple[int, int, int, int, int]]:
    """(offset on chip, offset in DRAM, rows, columns, stride) of each transfer.

    >>> list(rectangles(2, 56, 7, 8, 8))
    [(0, 0, 2, 56, 56)]
    """
    if columns == row_stride and rows * columns <= LARGEST:
        rows, columns = 1, rows * columns
    if rows == 1 and (planes == 1 or plane_stride <= LARGEST):
        yield 0, 0, planes, columns, plane_stride if planes > 1 else columns
        return
    for plane in range(planes):
        chip, dram = plane * rows * columns, plane * plane_stride
        if rows == 1 or row_stride <= LARGEST:
            yield chip, dram, rows, columns, row_stride if rows > 1 else columns
        else:
            for row in range(rows):
                yield chip + row * columns, dram + row * row_stride, 1, columns, columns
