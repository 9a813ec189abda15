"""What layouts such as NCHW and HWIO say about axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def axis_of(layout: str, name: str) -> int:
    """Index of an axis.

    >>> axis_of("NHWC", "C")
    3
    """
    return layout.index(name)


def spatial(layout: str) -> list[int]:
    """Indices of the axes that are space.

    >>> spatial("NHWC"), spatial("OIHW")
    ([1, 2], [2, 3])
    """
    return [index for index, name in enumerate(layout) if name in "DHW"]


def arrange(layout: str, sizes: dict[str, Any]) -> tuple[Any, ...]:
    """Sizes of axes in the order of a layout.

    >>> arrange("HWIO", {"O": 8, "I": 4, "H": 3, "W": 1})
    (3, 1, 4, 8)
    """
    return tuple(sizes[name] for name in layout)


def per_axis(value: Any, count: int) -> tuple[int, ...]:
    """A number for each axis, from one number for all or a sequence.

    >>> per_axis(3, 2), per_axis([1, 2], 2)
    ((3, 3), (1, 2))
    """
    if isinstance(value, Sequence) or hasattr(value, "__len__"):
        return tuple(int(v) for v in value) * (count if len(value) == 1 else 1)
    return (int(value),) * count
