"""Threads that share the cores of this machine: each runs a network by itself."""

from __future__ import annotations

import ctypes
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import tvm

MOST = 4  # threads: each holds the tensors of a run
FAST_CORES = 1  # TVM's mode for its workers
M_MMAP_THRESHOLD = -3  # as malloc.h of glibc has it
LARGE = 1 << 20  # bytes
BIND = "TVM_BIND_THREADS"

_environment = threading.Lock()


def threads() -> ThreadPoolExecutor:
    """A pool with a thread for each core, `MOST` at most; TVM uses what is left in each.

    Running samples side by side keeps cores busier than splitting each kernel among them.
    """
    _keep_large_blocks_apart()
    cores = _cores()
    count = min(cores, MOST)
    return ThreadPoolExecutor(count, "tvm_quant", _use_cores, (cores // count,))


def _use_cores(count: int) -> None:
    """TVM's pool belongs to the thread that calls; it must not be bound to the first cores.

    TVM reads the variable when a pool is configured, and takes its absence for a yes.
    """
    with _environment:
        before = os.environ.get(BIND)
        os.environ[BIND] = before or "0"
        tvm.get_global_func("runtime.config_threadpool")(FAST_CORES, count)
        if before is None:
            del os.environ[BIND]


def _keep_large_blocks_apart() -> None:
    """Have glibc give large arrays back to the system when they are freed.

    Left alone it learns to keep them in its heap, where those of several threads leave holes: a
    sixth more memory after some hundred samples.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE)


def _cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
