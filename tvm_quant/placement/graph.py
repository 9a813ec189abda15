"""The graph that placement is solved on: operators with ports, and nothing of Relax.

A *place* is where a quantizer can stand: before an input port, or after an operator.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from tvm_quant.hardware import Grid


class Trait(Enum):
    """What an operator does to quantizers."""

    QUANTIZABLE = "quantizable"  # its ports ask for quantizers; none climbs through
    AGNOSTIC = "agnostic"  # moves codes untouched: a quantizer climbs through to every input
    JOIN = "join"  # agnostic, of several inputs; a fork above it needs a quantizer that climbed
    FLOAT = "float"  # an island, an input or an output of the network: none climbs through
    LOOKUP = "lookup"  # its result holds values of its constant: that is quantized instead


@dataclass(frozen=True, kw_only=True)
class Port:
    """One operand of an operator.

    Attributes:
        source: operator that computes it; None for a constant.
        grids: what the operator accepts, best first; empty if it takes no quantizer here.
        integer: it carries integers, such as indices.
        fixed: its quantizer has settings of its own and stays here.
    """

    source: str | None
    grids: tuple[Grid, ...] = ()
    integer: bool = False
    fixed: bool = False


@dataclass(frozen=True, kw_only=True)
class Op:
    """One operator: a call, or several that run as one kernel.

    Attributes:
        name: unique in the graph.
        trait: what it does to quantizers.
        ports: its operands, fields of tuples one by one.
        unified: whether all its inputs share one scale.
        cheap: runs as well in float: a quantizer for it alone is not worth its cost.
        keeps_channels: channels of its inputs are channels of its result, so that one scale per
            channel can climb through.
    """

    name: str
    trait: Trait
    ports: tuple[Port, ...] = ()
    unified: bool = False
    cheap: bool = False
    keeps_channels: bool = True


@dataclass(frozen=True, order=True)
class Place:
    """Before input `port` of operator `op`, or after `op` where `port` is -1.

    >>> print(Place("conv", 0), Place.after("conv"))
    in(conv,0) out(conv)
    """

    op: str
    port: int = -1

    @classmethod
    def after(cls, op: str) -> Place:
        """The place at the output of `op`."""
        return cls(op)

    @property
    def is_output(self) -> bool:
        """Whether it is the place after the operator."""
        return self.port < 0

    def __str__(self) -> str:
        return f"out({self.op})" if self.is_output else f"in({self.op},{self.port})"


class Graph:
    """Operators in topological order, and who reads each of them."""

    def __init__(self, ops: Iterable[Op]):
        self.ops: dict[str, Op] = {op.name: op for op in ops}
        self.readers: dict[str, list[Place]] = {name: [] for name in self.ops}
        for op in self.ops.values():
            for index, port in enumerate(op.ports):
                if port.source is not None:
                    self.readers[port.source].append(Place(op.name, index))

    def port(self, place: Place) -> Port:
        """The port of an input place."""
        return self.ops[place.op].ports[place.port]
