"""The public functions `relay.add`, `relay.nn.conv2d`, `relay.qnn.op.quantize`, ...

Each is made from the row of its operator; the few that are no operator stand in `composed`.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

from tvm_relay.composed import COMPOSED
from tvm_relay.gone import GONE, advice
from tvm_relay.op.base import OPS


class Namespace:
    """Functions of the operators whose names begin with a prefix.

    >>> Namespace("nn.").relu.__name__
    'relu'
    """

    def __init__(self, prefix: str):
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        return public(self._prefix + name)

    def __dir__(self) -> list[str]:
        names = [name for name in (*OPS, *COMPOSED) if name.startswith(self._prefix)]
        return sorted(name.removeprefix(self._prefix) for name in names)


@functools.cache
def public(name: str) -> Any:
    """The function of an operator, or of what is composed of operators.

    Raises:
        AttributeError: there is none; of what is gone, with what stands in its place.
    """
    if name in COMPOSED:
        return COMPOSED[name]
    if f"relay.{name}" in GONE:
        raise AttributeError(advice(f"relay.{name}"))
    if name not in OPS:
        raise AttributeError(f"Relay's operator '{name}' is not in the table of tvm_relay.op")
    entry = OPS[name]

    def function(*args: Any, **kwargs: Any) -> Any:
        return entry.call(*args, **kwargs)

    function.__name__ = function.__qualname__ = name.rpartition(".")[2]
    function.__doc__ = entry.build.__doc__ or f"A call of Relay's operator `{name}`."
    function.__signature__ = entry.signature()  # type: ignore[attr-defined]
    return function


nn = Namespace("nn.")
image = Namespace("image.")
annotation = Namespace("annotation.")
qnn = SimpleNamespace(op=Namespace("qnn."))

_NAMESPACES = {"nn": nn, "image": image, "annotation": annotation}


def lookup(name: str) -> Any:
    """A namespace or a function without prefix.

    Raises:
        AttributeError: there is neither.
    """
    return _NAMESPACES[name] if name in _NAMESPACES else public(name)
