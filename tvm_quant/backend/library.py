"""A compiled module as bytes, which travel to other processes."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

import tvm
from tvm import relax

STDERR = 2

Opened = TypeVar("Opened")


def exported(executable: relax.VMExecutable) -> bytes:
    """The shared library of a compiled module."""
    with tempfile.TemporaryDirectory() as folder, _without_log():
        path = Path(folder) / "module.so"
        executable.export_library(str(path))
        return path.read_bytes()


def loaded(library: bytes) -> Any:
    """Inverse of `exported`: what a `relax.VirtualMachine` runs."""
    with tempfile.TemporaryDirectory() as folder, _without_log():
        path = Path(folder) / "module.so"
        path.write_bytes(library)
        # The loaded library stays mapped when its file goes.
        return tvm.runtime.load_module(str(path))


class Latest(Generic[Opened]):
    """What was made of the library that came last: a process loads one once, however often sent."""

    def __init__(self) -> None:
        self._kept: dict[bytes, Opened] = {}
        self._lock = threading.Lock()

    def get(self, library: bytes, opened: Callable[[bytes], Opened]) -> Opened:
        """That of this library; `opened` makes it the first time."""
        key = hashlib.sha256(library).digest()
        with self._lock:
            if key not in self._kept:
                self._kept.clear()
                self._kept[key] = opened(library)
            return self._kept[key]


@contextmanager
def _without_log() -> Iterator[None]:
    """Without standard error: TVM writes a line for each constant of a module that has run."""
    sys.stderr.flush()
    kept = os.dup(STDERR)
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), STDERR)
        yield
    finally:
        os.dup2(kept, STDERR)
        os.close(kept)
