"""Processes that share the work of a command."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Annotated

import typer

Workers = Annotated[
    int, typer.Option(min=1, help="Processes that run the network; 1 uses threads.")
]


@contextmanager
def executor(workers: int) -> Iterator[Executor | None]:
    """Processes of their own, started afresh: TVM's thread pool does not survive a fork."""
    if workers == 1:
        yield None
        return
    context = get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, initializer=_leave_interrupts_to_parent)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _leave_interrupts_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
