"""Threads that open virtual machines of one executable at once."""

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import tvm
from tvm import relax

from plain_tvm import QUICK, build
from tvm_quant.backend.library import exported, loaded
from tvm_quant.backend.machines import Machines

THREADS = 4

#: Equal ones would be one; so many that machines are still opening when the others do.
CONSTANTS = 2000


def constants(builder, x):
    for value in range(CONSTANTS):
        x = builder.emit(relax.op.add(x, relax.const(np.full(4, value, "float32"))))
    return x


def open_at_once(executable):
    machines = Machines(executable, tvm.cpu())
    barrier, results = threading.Barrier(THREADS), []

    def run():
        barrier.wait()
        results.append(machines["main"](tvm.runtime.tensor(np.zeros(4, "float32"))).numpy())

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_threads_open_machines_at_once():
    """In a process of its own: without the lock it dies, and not with an exception."""
    folder = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", "from backend.test_machines import main; main()"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "20 libraries"), done.stderr[-2000:]


def main():
    library = exported(tvm.compile(build(constants, x=(4,)), QUICK))
    for _ in range(20):
        results = open_at_once(loaded(library))
        assert len(results) == THREADS
        assert all((result == sum(range(CONSTANTS))).all() for result in results)
    print("20 libraries")
