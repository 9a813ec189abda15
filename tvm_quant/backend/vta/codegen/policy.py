"""Which stage goes on, of those that could: on hardware any of them may be the faster one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle, repeat

import numpy as np

from tvm_quant.backend.vta.codegen.isa import Stage

#: Starts an iterator over orders of stages, of which each step takes one: the first that can go on.
Policy = Callable[[], Iterator[Sequence[Stage]]]

LOAD, COMPUTE, STORE = Stage


def load_first() -> Iterator[Sequence[Stage]]:
    """Loads run as far ahead as their tokens let them."""
    return repeat((LOAD, COMPUTE, STORE))


def compute_first() -> Iterator[Sequence[Stage]]:
    """Nothing is loaded or stored before the matrix unit or the ALU waits for it."""
    return repeat((COMPUTE, STORE, LOAD))


def store_first() -> Iterator[Sequence[Stage]]:
    """Results leave as soon as they can."""
    return repeat((STORE, LOAD, COMPUTE))


def round_robin() -> Iterator[Sequence[Stage]]:
    """The stages take turns."""
    return cycle([(LOAD, COMPUTE, STORE), (COMPUTE, STORE, LOAD), (STORE, LOAD, COMPUTE)])


def at_random(seed: int) -> Iterator[Sequence[Stage]]:
    """Another order at every step."""
    rng = np.random.default_rng(seed)
    while True:
        yield [Stage(index) for index in rng.permutation(len(Stage))]


POLICIES: dict[str, Policy] = {
    "load-first": load_first,
    "compute-first": compute_first,
    "store-first": store_first,
    "round-robin": round_robin,
    "random": partial(at_random, 0),
    "random-1": partial(at_random, 1),
}
"""{name: policy}. A program must give the same under all of them; none is the program's order."""
