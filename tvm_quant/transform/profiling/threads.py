"""Threads that share the cores of this machine: each runs a network by itself."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import tvm

MOST = 4  # threads: each holds the tensors of a run
FAST_CORES = 1  # TVM's mode for its workers


def threads() -> ThreadPoolExecutor:
    """A pool with a thread for each core, `MOST` at most; TVM uses what is left in each.

    Running samples side by side keeps cores busier than splitting each kernel among them.
    """
    cores = _cores()
    count = min(cores, MOST)
    return ThreadPoolExecutor(count, "tvm_quant", _use_cores, (cores // count,))


def _use_cores(count: int) -> None:
    """TVM's pool belongs to the thread that calls."""
    tvm.get_global_func("runtime.config_threadpool")(FAST_CORES, count)


def _cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
