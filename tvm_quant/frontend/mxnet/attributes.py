"""Attributes of an MXNet node: text in the file, typed where a converter asks."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_FLAGS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True)
class Attributes:
    """What a node says of itself, {name: text}. A name that it does not say has a default.

    Files of Python 2 write numbers as `3L`.

    >>> Attributes({"kernel": "(3L, 3L)", "no_bias": "True"}).sizes("kernel")
    (3, 3)
    """

    values: Mapping[str, str]

    def __contains__(self, name: str) -> bool:
        return self.values.get(name, "None") != "None"

    def text(self, name: str, default: str) -> str:
        """A word."""
        return self.values[name] if name in self else default

    def flag(self, name: str, default: bool = False) -> bool:
        """Yes or no."""
        word = self.text(name, str(default)).lower()
        if word not in _FLAGS:
            raise self._refusal(name, "True or False")
        return _FLAGS[word]

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number."""
        number = self.number(name, default)
        if number != int(number):
            raise self._refusal(name, "a whole number")
        return int(number)

    def number(self, name: str, default: float | None = None) -> float:
        """Any number."""
        value = self._literal(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._refusal(name, "a number")
        return value

    def sizes(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Whole numbers; a single one may stand without parentheses."""
        value = self.slots(name, default)
        if any(item is None for item in value):
            raise self._refusal(name, "whole numbers")
        return tuple(int(item) for item in value if item is not None)

    def slots(
        self, name: str, default: tuple[int | None, ...] | None = None
    ) -> tuple[int | None, ...]:
        """Whole numbers, of which some may be None."""
        value = self._literal(name, default)
        items = value if isinstance(value, tuple | list) else (value,)
        if any(isinstance(item, bool) or not isinstance(item, int | None) for item in items):
            raise self._refusal(name, "whole numbers")
        return tuple(items)

    def _literal(self, name: str, default: Any) -> Any:
        if name not in self:
            if default is None:
                raise ValueError(f"its attribute '{name}' is missing")
            return default
        try:
            return ast.literal_eval(re.sub(r"(?<=\d)L\b", "", self.values[name]))
        except (ValueError, SyntaxError) as error:
            raise self._refusal(name, "numbers") from error

    def _refusal(self, name: str, expected: str) -> ValueError:
        return ValueError(f"its attribute '{name}' is '{self.values[name]}'; expected {expected}")
