"""Graphs for tests of the solver, written as text: one edge a word.

    "x>a:conv a>b:conv b>y"     an edge from x to a, which is a convolution
    "ids>g:gather[1]i"          into port 1, carrying integers

Operators without a type are inputs and outputs.
"""

import re

from tvm_quant.hardware import grids
from tvm_quant.placement import Graph, Op, Port, Trait

EDGE = re.compile(r"(\w+)>(\w+)(?::(\w+))?(?:\[(\d+)\])?(i?)")

# Type: trait, grids of its ports, further fields.
TYPES = {
    "conv": (Trait.QUANTIZABLE, "8SN 8AN", {}),
    "conv4": (Trait.QUANTIZABLE, "4SN", {}),
    "dwconv": (Trait.QUANTIZABLE, "8SC 8SN", {}),
    "unsigned": (Trait.QUANTIZABLE, "8SNu", {}),
    "signed": (Trait.QUANTIZABLE, "8SNs", {}),
    "add": (Trait.QUANTIZABLE, "8SN 8AN", {}),
    "tied": (Trait.QUANTIZABLE, "8SC 8SN", {"unified": True}),
    "untieable": (Trait.QUANTIZABLE, "8SC", {"unified": True}),
    "scale": (Trait.QUANTIZABLE, "8SN", {"cheap": True}),
    "pool": (Trait.AGNOSTIC, "", {}),
    "reshape": (Trait.AGNOSTIC, "", {"keeps_channels": False}),
    "gather": (Trait.AGNOSTIC, "", {}),
    "concat": (Trait.JOIN, "", {"unified": True}),
    "join": (Trait.JOIN, "", {}),
    "softmax": (Trait.FLOAT, "", {}),
}


def graph(text, fixed=()):
    """The graph of a text; ports of operators in `fixed` keep their quantizers."""
    edges = [EDGE.fullmatch(word).groups() for word in text.split()]
    types = {target: kind for _source, target, kind, _port, _integer in edges if kind}
    names = list(dict.fromkeys(name for edge in edges for name in edge[:2]))
    return Graph(_op(name, types.get(name), edges, name in fixed) for name in _sorted(names, edges))


def _op(name, kind, edges, fixed):
    trait, accepted, more = TYPES[kind] if kind else (Trait.FLOAT, "", {})
    ports = sorted(
        (int(port or 0), source, bool(integer))
        for source, target, _kind, port, integer in edges
        if target == name
    )
    return Op(
        name=name,
        trait=trait,
        ports=tuple(
            Port(source=source, grids=grids(accepted), integer=integer, fixed=fixed)
            for _port, source, integer in ports
        ),
        **more,
    )


def _sorted(names, edges):
    """Every operator behind its inputs."""
    done = []
    while len(done) < len(names):
        done += [
            name
            for name in names
            if name not in done and all(e[0] in done for e in edges if e[1] == name)
        ]
    return done
