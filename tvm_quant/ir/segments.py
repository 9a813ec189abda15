"""Cutting a function into segments that can be run one after the other.

Before    main(x):        y = conv2d(x, w1);  z = conv2d(relu(y), w2);  return z
After     segment_0(x):   y = conv2d(x, w1);            return (y,)
          segment_1(y):   z = conv2d(relu(y), w2);      return (z,)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tvm import IRModule, relax

from tvm_quant.ir.bindings import tensor_shape
from tvm_quant.ir.rebuild import function_of
from tvm_quant.ir.signature import main_function

Binding: TypeAlias = relax.VarBinding | relax.MatchCast


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A run of bindings of a function, as a function of its own.

    Attributes:
        name: of its function.
        reads: parameters and variables of the whole function that it takes, in order.
        gives: variables of the whole function that it returns, a tuple's fields in order.
    """

    name: str
    reads: tuple[relax.Var, ...]
    gives: tuple[relax.Var, ...]


def cut(mod: IRModule, ends: Sequence[relax.Var]) -> tuple[IRModule, list[Segment]]:
    """Cut `main` after the bindings of some variables; what follows the last is left out.

    A segment takes what it reads, and what defines symbolic dimensions: parameters and match casts.
    It gives its last variable and what later segments read.

    Args:
        mod: the module.
        ends: last variable of each segment, in order.

    Returns:
        (a module with a function for each segment instead of `main`, the segments).
    """
    func = main_function(mod)
    pieces = list(_pieces(func, ends))
    reads = _reads(func.params, pieces)
    wanted = set(ends)
    segments: list[Segment] = []
    for index in reversed(range(len(pieces))):
        gives = tuple(binding.var for binding in pieces[index] if binding.var in wanted)
        wanted.update(reads[index])
        segments.insert(0, Segment(name=f"segment_{index}", reads=reads[index], gives=gives))
    functions = {gvar: other for gvar, other in mod.functions_items() if gvar.name_hint != "main"}
    built = IRModule(functions, attrs=mod.attrs)
    for segment, piece in zip(segments, pieces, strict=True):
        result = relax.Tuple(list(segment.gives))
        built[segment.name] = function_of(segment.name, segment.reads, piece, result)
    return built, segments


def _pieces(func: relax.Function, ends: Sequence[relax.Var]) -> Iterator[list[Binding]]:
    rest = iter([binding for block in func.body.blocks for binding in block.bindings])
    for end in ends:
        piece: list[Binding] = []
        while not piece or not piece[-1].var.same_as(end):
            piece.append(next(rest))
        yield piece


def _reads(
    params: Sequence[relax.Var], pieces: Sequence[Sequence[Binding]]
) -> list[tuple[relax.Var, ...]]:
    """What each piece takes from before it."""
    dimensions = [param for param in params if _is_symbolic(param)]
    known = set(params)
    result = []
    for piece in pieces:
        found = dict.fromkeys(dimensions)
        for binding in piece:
            found |= dict.fromkeys(relax.analysis.free_vars(binding.value))
        # Free are symbolic dimensions, too.
        result.append(tuple(var for var in found if var in known))
        known |= {binding.var for binding in piece}
        dimensions += [binding.var for binding in piece if isinstance(binding, relax.MatchCast)]
    return result


def _is_symbolic(param: relax.Var) -> bool:
    shape = tensor_shape(param)
    return shape is None or None in shape
