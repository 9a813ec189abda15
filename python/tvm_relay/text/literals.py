"""Numbers and strings of the text format, both ways.

An integer without a suffix is int32, or int64 where it does not fit; `i16`, `i32`, `i64` say which.
A float always has a suffix: `f` is float32; `f16`, `f32`, `f64` say which.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

_NUMBER = re.compile(r"(?P<signs>-*)(?P<digits>.*?)(?P<suffix>[if](?P<bits>\d*))?")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_INTEGERS = {"": ("int32", "int64"), "16": ("int16",), "32": ("int32",), "64": ("int64",)}
_FLOATS = {"": "float32", "16": "float16", "32": "float32", "64": "float64"}
_SUFFIXES = {
    "int16": "i16",
    "int32": "",
    "int64": "i64",
    "float16": "f16",
    "float32": "f",
    "float64": "f64",
}


def read_scalar(text: str) -> np.generic:
    """The value of a number or a truth value, in its dtype.

    Raises:
        ValueError: a suffix that does not exist, or a value that does not fit.

    >>> read_scalar("-3i64"), read_scalar("0.5f"), read_scalar("True")
    (np.int64(-3), np.float32(0.5), np.True_)
    """
    if text in ("True", "False"):
        return np.bool_(text == "True")
    value = read_number(text)
    bits = _split(text)["bits"] or ""
    if isinstance(value, float):
        return _read_float(text, value, bits)
    return _read_integer(text, value, bits)


def read_number(text: str) -> int | float | bool:
    """The value of a number or a truth value that stands as an attribute, in full precision.

    >>> read_number("0.1f"), read_number("--2i64"), read_number("-inff")
    (0.1, 2, -inf)
    """
    if text in ("True", "False"):
        return text == "True"
    parts = _split(text)
    sign = -1 if len(parts["signs"]) % 2 else 1
    if (parts["suffix"] or "").startswith("f"):
        return sign * float(parts["digits"])
    return sign * int(parts["digits"])


def read_string(text: str) -> str:
    r"""What stands between quotes; escapes as in C, bytes as UTF-8.

    >>> read_string(r'"a\"b\xC3\xA9"')
    'a"bé'
    """
    if text.startswith("'"):
        return text[1:-1]
    data = _ESCAPE.sub(_unescape, text[1:-1])
    return data.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def write_string(value: str) -> str:
    r"""A string in quotes, as TVM escapes it.

    >>> write_string('a"bé')
    '"a\\"b\\xC3\\xA9"'
    """
    named = {ord('"'): '\\"', ord("\\"): "\\\\", 10: "\\n", 9: "\\t", 13: "\\r"}
    pieces = [
        named.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\x{byte:02X}")
        for byte in value.encode("utf-8", "replace")
    ]
    return f'"{"".join(pieces)}"'


def write_scalar(data: npt.NDArray[Any]) -> str | None:
    """The literal that reads back as this constant; None where the format has none.

    >>> write_scalar(np.float32(1e-5)), write_scalar(np.int64(3)), write_scalar(np.int8(3))
    ('1e-05f', '3i64', None)
    """
    if data.shape != ():
        return None
    if data.dtype == np.bool_:
        return str(bool(data))
    suffix = _SUFFIXES.get(str(data.dtype))
    if suffix is None or not _has_literal(data):
        return None
    return _digits(data[()]) + suffix


def write_number(value: float | np.generic) -> str:
    """An attribute that is a number.

    >>> write_number(6.0), write_number(0.1), write_number(-3), write_number(True)
    ('6f', '0.1f', '-3', 'True')
    """
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | np.integer):
        number = int(value)
        return f"{number}" if -(2**31) <= number < 2**31 else f"{number}i64"
    return f"{_digits(np.float64(value))}f"


def _has_literal(data: npt.NDArray[Any]) -> bool:
    """TVM reads no NaN, and infinity in float32 alone."""
    finite = bool(np.isfinite(data))
    return finite or (data.dtype == np.float32 and not bool(np.isnan(data)))


def _digits(value: Any) -> str:
    """The shortest digits that read back as this value."""
    return str(value).removesuffix(".0")


def _split(text: str) -> dict[str, Any]:
    match = _NUMBER.fullmatch(text)
    assert match is not None
    return match.groupdict()


def _read_float(text: str, value: float, bits: str) -> np.generic:
    dtype = _FLOATS.get(bits)
    if dtype is None:
        raise ValueError(f"{text} has {bits} bits; expected f, f16, f32 or f64")
    with np.errstate(over="ignore"):
        result = np.dtype(dtype).type(value)
    if np.isinf(result) and not np.isinf(value):
        raise ValueError(f"{text} does not fit in {dtype}")
    return result  # type: ignore[no-any-return]


def _read_integer(text: str, value: int, bits: str) -> np.generic:
    if bits not in _INTEGERS:
        raise ValueError(f"{text} has {bits} bits; expected i16, i32 or i64")
    for dtype in _INTEGERS[bits]:
        limits = np.iinfo(dtype)
        if limits.min <= value <= limits.max:
            return np.dtype(dtype).type(value)  # type: ignore[no-any-return]
    raise ValueError(f"{text} does not fit in {_INTEGERS[bits][-1]}")


def _unescape(match: re.Match[str]) -> str:
    code = match.group(1)
    if code[0] == "x" and len(code) > 1:
        return _byte(int(code[1:], 16))
    if code[0] in "01234567":
        return _byte(int(code, 8) & 0xFF)
    return _CONTROL.get(code, code)


def _byte(value: int) -> str:
    """A byte as a character that encodes to that byte."""
    return chr(value) if value < 128 else chr(0xDC00 + value)
