"""Reading the fields of a preprocessing spec: plain values from a YAML file, or typed ones."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np

from tvm_quant.errors import DatasetError


def member(enum: type[Enum], value: Any, field: str) -> Enum:
    """The member of `enum` whose value is written as `value`, in any case."""
    text = str(value.value if isinstance(value, Enum) else value)
    for choice in enum:
        if str(choice.value).lower() == text.lower():
            return choice
    names = ", ".join(str(choice.value) for choice in enum)
    raise DatasetError(f"preprocessing: '{field}' is {text!r}; choose one of {names}")


def size(value: Any, field: str) -> tuple[int, int] | None:
    """(height, width) from a pair or from one number."""
    if value is None:
        return None
    pair = (value, value) if isinstance(value, int) else tuple(value) if _is_pair(value) else ()
    if len(pair) != 2 or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in pair):
        raise DatasetError(
            f"preprocessing: '{field}' is {value!r}; expected a positive number of pixels or a "
            "pair [height, width]"
        )
    return pair


def _is_pair(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 2


def numbers(value: Any, field: str) -> tuple[float, ...]:
    """Finite floats from one number or several; a fraction such as "1/255" counts."""
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    try:
        found = tuple(_number(item) for item in items)
    except (TypeError, ValueError, ZeroDivisionError):
        found = ()
    if not found or not np.isfinite(found).all():
        raise DatasetError(f"preprocessing: '{field}' is {value!r}; expected finite numbers")
    return found


def _number(value: Any) -> float:
    """Read `0.5`, or a fraction such as `"1/255"`."""
    if isinstance(value, str) and value.count("/") == 1:
        above, below = value.split("/")
        return float(above) / float(below)
    return float(value)
