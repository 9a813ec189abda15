"""The text of a program: its parts, and errors that point into it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from tvm_quant.errors import FrontendError, UnsupportedError
from tvm_relay.expr import Expr

#: What a scan for comments may not overlook, and what it looks for.
_MARK = re.compile(r'"(?:[^"\\]|\\.)*"|//|/\*|#\[\s*metadata\s*\]', re.DOTALL)
_NESTING = re.compile(r"/\*|\*/")
#: Columns of a line that an error shows to each side of the place it is about.
_MARGIN = 60


class RelayTextError(FrontendError):
    """A text that is no Relay program, or one that holds what has no counterpart in Relax.

    Attributes:
        line, column: the place in the text, both from 1.
    """

    def __init__(self, message: str, line: int, column: int):
        super().__init__(message)
        self.line = line
        self.column = column


@dataclass(frozen=True)
class Place:
    """A line and a column of the text, both from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Source:
    """A text and what it is called in errors, most often a file."""

    name: str
    text: str

    def error(self, message: str, place: Place) -> RelayTextError:
        """An error that shows the line, with a caret below the place."""
        lines = self.text.split("\n")
        line = lines[place.line - 1] if 0 < place.line <= len(lines) else ""
        start = max(0, place.column - 1 - _MARGIN)
        shown = line[start : place.column - 1 + _MARGIN].rstrip("\r")
        indent = "".join("\t" if c == "\t" else " " for c in line[start : place.column - 1])
        return RelayTextError(
            f"{self.name}:{place.line}:{place.column}: {message}\n    {shown}\n    {indent}^",
            place.line,
            place.column,
        )

    def place(self, offset: int) -> Place:
        """The line and column of an index into the text."""
        before = self.text[:offset]
        return Place(before.count("\n") + 1, offset - before.rfind("\n"))

    def parts(self) -> Parts:
        """The program without comments, and the metadata section.

        Raises:
            RelayTextError: a comment without an end.
        """
        program, position = [], 0
        while (mark := _MARK.search(self.text, position)) is not None:
            program.append(self.text[position : mark.start()])
            if mark.group().startswith("#"):
                return Parts("".join(program), mark.end())
            end = mark.end() if mark.group().startswith('"') else self._end_of_comment(mark)
            kept = self.text[mark.start() : end]
            program.append(kept if kept.startswith('"') else re.sub(r"[^\n]", " ", kept))
            position = end
        return Parts("".join((*program, self.text[position:])), None)

    def _end_of_comment(self, start: re.Match[str]) -> int:
        if start.group() == "//":
            end = self.text.find("\n", start.end())
            return end if end >= 0 else len(self.text)
        depth = 1
        for mark in _NESTING.finditer(self.text, start.end()):
            depth += 1 if mark.group() == "/*" else -1
            if depth == 0:
                return mark.end()
        raise self.error("this comment has no end; close it with */.", self.place(start.start()))


#: Where expressions were read; an entry lives as long as its expression.
_ORIGINS: WeakKeyDictionary[Expr, tuple[Source, Place]] = WeakKeyDictionary()


def remember(expr: Expr, source: Source, place: Place) -> None:
    """Keep where an expression stands."""
    _ORIGINS[expr] = (source, place)


def located(error: FrontendError | UnsupportedError, expr: object) -> Exception:
    """An error about an expression with the place in the text that it was read from, if any."""
    if isinstance(error, RelayTextError) or not isinstance(expr, Expr) or expr not in _ORIGINS:
        return error
    source, place = _ORIGINS[expr]
    return source.error(str(error), place)


@dataclass(frozen=True)
class Parts:
    """A text, taken apart.

    Attributes:
        program: what comes before the metadata; comments are blanks, so that places stay.
        metadata: index of the text behind the line `#[metadata]`; None where there is none.
    """

    program: str
    metadata: int | None
