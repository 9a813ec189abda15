"""Targets in the form of old: "llvm -mcpu=core-avx2 -mattr=+avx2,+fma"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm.target import Target

_LISTS = ("mattr", "keys", "libs")


def as_target(target: Any) -> Any:
    """A target that TVM takes; None is the current one, or "llvm".

    >>> str(as_target("llvm -mcpu=skylake").attrs["mcpu"])
    'skylake'
    """
    if target is None:
        return Target.current(allow_none=True) or "llvm"
    if isinstance(target, str) and " -" in target:
        return Target(options(target))
    if isinstance(target, Mapping) and "kind" not in target:
        return as_target(next(iter(target.values())))
    return target


def options(text: str) -> dict[str, Any]:
    """Options of a target as a mapping.

    >>> options("llvm -mcpu=skylake -mattr=+avx2,+fma")
    {'kind': 'llvm', 'mcpu': 'skylake', 'mattr': ['+avx2', '+fma']}
    """
    kind, *words = text.split()
    found: dict[str, Any] = {"kind": kind}
    for word in words:
        name, _, value = word.lstrip("-").partition("=")
        found[name] = value.split(",") if name in _LISTS else value
    return found
