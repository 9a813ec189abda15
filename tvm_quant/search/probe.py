"""Probe: a float network in which single layers can be replaced, compiled once.

The network is cut where layers begin and end. A variant runs the slices of its layers instead of
the float ones, and after them only what depends on their results: everything else is kept from the
float run of the same batch. Whatever the number of variants, there is one compilation.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import IRModule, relax

from tvm_quant.backend import Functions
from tvm_quant.ir import bindings
from tvm_quant.ir.segments import Segment, cut
from tvm_quant.ir.signature import main_function
from tvm_quant.search.slices import Slice

Array = npt.NDArray[Any]
#: Tensors of one batch by variable of the float network.
Values = Mapping[str, Any]
#: {(layer, choice): slice that can replace the layer}.
Pieces = dict[tuple[str, Hashable], Slice]


class Probe:
    """The network and its slices. Can be pickled, with all that is compiled.

    Args:
        mod: the float network.
        slices: what can be replaced, by what.
    """

    def __init__(self, mod: IRModule, slices: Pieces):
        func = main_function(mod)
        self.output = str(func.body.body.name)
        self.inputs = [str(param.name) for param in func.params]
        wanted = {self.output} | {one.end for one in slices.values()}
        wanted |= {name for one in slices.values() for name in one.reads}
        ends = [b.var for b in bindings(func) if str(b.var.name) in wanted]
        built, segments = cut(mod, ends)
        self.segments = [_Named.of(segment) for segment in segments]
        self.slices: dict[tuple[str, Hashable], _Named] = {}
        for index, (key, one) in enumerate(slices.items()):
            name = f"slice_{index}"
            built[name] = one.function.with_attr("global_symbol", name)
            self.slices[key] = _Named(name=name, reads=one.reads, gives=(one.end,))
        self.functions = Functions(built)

    def float_run(self, batch: Mapping[str, Array]) -> Values:
        """Everything that variants may need of a batch."""
        values: dict[str, Any] = {name: batch[name] for name in self.inputs}
        for segment in self.segments:
            self._run(segment, values, values)
        return values

    def variant_run(self, known: Values, replaced: Mapping[str, Hashable]) -> Values:
        """What differs from the float run where layers are replaced.

        Args:
            known: of `float_run`.
            replaced: {layer: choice}.
        """
        instead = {one.gives[0]: one for one in (self.slices[key] for key in replaced.items())}
        changed: dict[str, Any] = {}
        for segment in self.segments:
            here = [instead[name] for name in segment.gives if name in instead]
            stale = any(name in changed for name in segment.reads)
            if stale and len(here) < len(segment.gives):
                self._run(segment, changed, {**known, **changed})
            for one in here:
                self._run(one, changed, {**known, **changed})
        return changed

    def outputs(self, values: Values, known: Values | None = None) -> list[Array]:
        """The outputs of the network in a run; `known` is the float run of a variant."""
        value = values[self.output] if self.output in values else (known or {})[self.output]
        return [np.array(array) for array in self.functions.arrays(value)]

    def _run(self, piece: _Named, into: dict[str, Any], values: Values) -> None:
        given = self.functions.call(piece.name, *[values[name] for name in piece.reads])
        into.update(zip(piece.gives, given, strict=True))


class _Named:
    """A function of the compiled module, with the names of what it takes and gives."""

    def __init__(self, *, name: str, reads: Sequence[str], gives: Sequence[str]):
        self.name, self.reads, self.gives = name, tuple(reads), tuple(gives)

    @classmethod
    def of(cls, segment: Segment) -> _Named:
        return cls(
            name=segment.name,
            reads=[_name(var) for var in segment.reads],
            gives=[_name(var) for var in segment.gives],
        )


def _name(var: relax.Var) -> str:
    return str(var.name)
