"""Mapping over an executor: results in order, few tasks waiting, nothing left behind on failure."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import closing
from typing import TypeVar

from tvm_quant.errors import BackendError
from tvm_quant.transform.profiling.threads import threads

Item = TypeVar("Item")
Result = TypeVar("Result")


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], executor: Executor | None
) -> Generator[Result, None, None]:
    """Results of `function` on each item, in the order of the items.

    Items are taken from the iterable only as workers come free: two tasks per worker are under way
    at most, so memory does not grow with the number of items. When a task fails, or the caller
    stops (Ctrl-C), tasks that have not started are cancelled. The executor stays open.

    Args:
        executor: any `concurrent.futures.Executor`; None runs on threads of this machine.

    Raises:
        BackendError: a worker process died.
    """
    if executor is None:
        with threads() as own, closing(ordered_map(function, items, own)) as results:
            yield from results
        return
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(executor.submit(function, item))
            if len(waiting) >= 2 * _workers(executor):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenExecutor as error:
        raise BackendError(
            "A profiling worker died, most often for lack of memory. Use fewer workers or smaller "
            "batches; a process pool needs a script whose entry point is guarded by "
            "`if __name__ == '__main__'`."
        ) from error
    finally:
        for future in waiting:
            future.cancel()


def _workers(executor: Executor) -> int:
    return int(getattr(executor, "_max_workers", None) or os.cpu_count() or 1)
