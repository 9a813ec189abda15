"""Processes that start from nothing: without the memory and the threads of this one."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

CONTEXT = multiprocessing.get_context("spawn")


def fresh_processes(count: int) -> ProcessPoolExecutor:
    """A pool of `count` new processes."""
    return ProcessPoolExecutor(count, mp_context=CONTEXT)
