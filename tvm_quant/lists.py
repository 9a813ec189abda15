"""What users list: values joined by commas, and names by shell patterns."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from tvm_quant.errors import ConfigError

T = TypeVar("T")


def listed(
    option: str,
    text: str,
    read: Callable[[str], T],
    expected: str = "numbers joined by commas, as 2,4,8",
) -> list[T]:
    """Values that are joined by commas, each once, in their order.

    Args:
        option: what users call it, for the error.
        text: what they wrote.
        read: one value; raises ValueError where it is none.
        expected: for the error.

    Raises:
        ConfigError: a value is missing, or `read` refuses it.

    >>> listed("--threads", "1, 2,1", count)
    [1, 2]
    """
    try:
        return list(dict.fromkeys(read(part.strip()) for part in text.split(",")))
    except ValueError as error:
        raise ConfigError(f"{option} is '{text}'; expected {expected}") from error


def count(text: str) -> int:
    """A number from 1 on.

    Raises:
        ValueError: it is none.
    """
    if not text.isdecimal() or not int(text):
        raise ValueError(text)
    return int(text)


def matching(patterns: Sequence[str], known: Iterable[str], what: str = "network") -> list[str]:
    """The known names that match one of the patterns, in their own order.

    Raises:
        ConfigError: a pattern matches nothing.

    >>> matching(["res*", "mnist"], ["mnist", "resnet8", "resnet20", "vww"])
    ['mnist', 'resnet8', 'resnet20']
    """
    names = list(known)
    found = {pattern: fnmatch.filter(names, pattern) for pattern in patterns}
    for pattern, some in found.items():
        if not some:
            raise ConfigError(f"no {what} matches '{pattern}'; there are {', '.join(names)}")
    chosen = {name for some in found.values() for name in some}
    return [name for name in names if name in chosen]
